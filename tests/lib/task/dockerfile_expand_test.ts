import { test } from "node:test";
import assert from "node:assert/strict";
import { expandText } from "../../../lib/task/dockerfile_expand.ts";

const VARIABLES = { A: "a", EMPTY: "", PATH_: "/usr/lib/python3.12/x.tar.gz", W: "two words", Ä: "umlaut" };

test("words expand as BuildKit's do", () => {
  const rows: [word: string, expected: string][] = [
    ["$A", "a"],
    ["${A}b", "ab"],
    ["$A$B.", "a."],
    ["$Ab-$A", "-a"],
    ["$", "$"],
    ["a$ b", "a$ b"],
    ["$Ä", "umlaut"],
    ["\\$A", "$A"],
    ["'$A'", "$A"],
    ['"$A \\$A \\" \\x"', 'a $A " \\x'],
    ["\\x\\\\", "x\\"],
    ["${B:-d}${EMPTY:-e}${EMPTY-f}${A:-g}", "dea"],
    ["${B:-${A:+y}}", "y"],
    ["${A:+y}${EMPTY:+n}${EMPTY+y}${B+n}", "yy"],
    ["${A:?no}", "a"],
    ["${PATH_#*/}", "usr/lib/python3.12/x.tar.gz"],
    ["${PATH_##*/}", "x.tar.gz"],
    ["${PATH_%.*}", "/usr/lib/python3.12/x.tar"],
    ["${PATH_%%.*}", "/usr/lib/python3"],
    ["${PATH_#nothing}", "/usr/lib/python3.12/x.tar.gz"],
    ["${W/o/0}", "tw0 words"],
    ["${W//o/0}", "tw0 w0rds"],
    ["${W// /\\/}", "two\\/words"],
    ["${PATH_/\\/usr/}", "/lib/python3.12/x.tar.gz"],
    ["$1$@$A", "a"],
  ];
  for (const [word, expected] of rows) assert.equal(expandText(word, VARIABLES), expected, word);
});

test("the text of a heredoc keeps its quotes, and loses its escapes", () => {
  const rows: [text: string, expected: string][] = [
    ["Hello '${A}' \"$A\"!\n", "Hello 'a' \"a\"!\n"],
    ["\\\n", "\n"],
    ["\\\\\n", "\\\n"],
    ["\\$A\n", "$A\n"],
    ["don't\n", "don't\n"],
  ];
  for (const [text, expected] of rows) assert.equal(expandText(text, VARIABLES, { quotes: false }), expected, text);
});

test("another escape character, and names without a value", () => {
  const unset: string[] = [];
  assert.equal(
    expandText("`$A \\$A $B ${C:-c}", VARIABLES, { escape: "`", unset: (name) => unset.push(name) }),
    "$A \\a  c",
  );
  assert.deepEqual(unset, ["B", "C"]);
});

test("what BuildKit refuses is refused", () => {
  for (
    const word of ["${A", "${", "${}", "${:-x}", "${A!x}", "${B:?not here}", "'open", '"open', "${W/x}", "${A#\\x}"]
  ) {
    assert.throws(() => expandText(word, VARIABLES), { code: "task.invalid" }, word);
  }
});
