import { test } from "node:test";
import assert from "node:assert/strict";
import { lineOfKey, readToml } from "../../../lib/task/toml.ts";

const FAULTS: [text: string, line: number, words: RegExp][] = [
  ["\uFEFFa = 1\n", 1, /byte order mark/],
  ["a = 1\nb = 2\rc = 3\n", 2, /carriage return without a line feed/],
  ["a = 1\r\na = 2\r\n", 2, /defined twice, found "a = 2"/],
  ["[a]\nb = 1\n[a]\n", 3, /defined twice/],
  ['a = 1\n\nb = "x\n', 3, /found "b = \\"x"/],
  ["a = [1,\n", 2, /found the end/],
];
for (const [text, line, words] of FAULTS) {
  test(`readToml() names line ${line} of ${JSON.stringify(text)}`, () => {
    const result = readToml(text);
    assert.ok(!result.ok);
    assert.equal(result.line, line);
    assert.match(result.message, words);
    assert.ok(!result.message.includes("\n"));
  });
}

test("readToml() reads CRLF as LF, inside strings too", () => {
  const result = readToml('a = """x\r\ny"""\r\nb = 1\r\n');
  assert.ok(result.ok);
  assert.deepEqual({ ...result.table }, { a: "x\ny", b: 1 });
});

const NEWER: [text: string, line: number, words: RegExp][] = [
  ["a = {\n b = 1 }", 1, /inline table over lines/],
  ["a = { b = 1, }", 1, /ends an inline table with a comma/],
  ["a = { b = [1, 2,], c = { d = 1, } }", 1, /ends an inline table with a comma/],
  ['x = 1\na = "\\e"', 2, /escape \\e/],
  ['a = """\n\\x41"""', 2, /escape \\x/],
  ["a = 07:32", 1, /time without seconds/],
  ["a = [1979-05-27 07:32]", 1, /time without seconds/],
  ["a = 1979-02-30", 1, /1979-02-30, which no calendar has/],
];
for (const [text, line, words] of NEWER) {
  test(`readToml() takes ${JSON.stringify(text)}, TOML 1.0 does not`, () => {
    assert.ok(readToml(text).ok);
    const strict = readToml(text, { toml10: true });
    assert.ok(!strict.ok);
    assert.equal(strict.line, line);
    assert.match(strict.message, words);
  });
}

const TEXT = `a = 1
"b c".d = 2
[t]
k = { x = 1 }

[t.deep."q.r"]
# k = 0
k = 1
[[list]]
name = "one"
[[list]]
name = "two"
[list.sub]
z = 1
[[list.inner]]
y = 1
[[list.inner]]
y = 2
`;
const LINES: [path: (string | number)[], line: number | undefined][] = [
  [["a"], 1],
  [["b c", "d"], 2],
  [["t"], 3],
  [["t", "k"], 4],
  [["t", "k", "x"], 4],
  [["t", "missing"], 3],
  [["t", "deep", "q.r", "k"], 8],
  [["list", 0, "name"], 10],
  [["list", 1, "name"], 12],
  [["list", 1, "sub", "z"], 14],
  [["list", 1, "inner", 1, "y"], 18],
  [["list", 1], 11],
  [["nowhere"], undefined],
];
for (const [path, line] of LINES) {
  test(`lineOfKey(${path.join(".")}) is ${line}`, () => assert.equal(lineOfKey(TEXT, path), line));
}
