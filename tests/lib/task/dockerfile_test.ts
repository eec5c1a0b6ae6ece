import { test } from "node:test";
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { heredocWords, type Instruction, parseDockerfile, splitWords } from "../../../lib/task/dockerfile.ts";

const brief = (text: string) => parseDockerfile(text).instructions.map((one) => `${one.line} ${one.name} ${one.args}`);

const LINES: [string, string, string[]][] = [
  ["a continuation joins without a separator", "RUN a\\\n  b\\\nc\n", ["1 RUN a  bc"]],
  ["E1: a comment inside a continuation is dropped", "RUN a && \\\n# why\n  b\n", ["1 RUN a &&   b"]],
  ["E1: an indented comment inside a continuation is dropped", "RUN a && \\\n   # why\n  b\n", ["1 RUN a &&   b"]],
  ["E1: a blank line inside a continuation is dropped", "RUN a && \\\n\n \n  b\n", ["1 RUN a &&   b"]],
  ["C5: CRLF line ends, also after a continuation", "FROM x\r\nRUN a \\\r\n  b\r\n", ["1 FROM x", "2 RUN a   b"]],
  ["a byte order mark is skipped", "\uFEFFFROM x\n", ["1 FROM x"]],
  ["two backslashes are a backslash, not a continuation", "ENV A b\\\\\nENV C d\n", ["1 ENV A b\\\\", "2 ENV C d"]],
  ["blanks may follow the continuation backslash", "RUN a \\  \nb\n", ["1 RUN a b"]],
  ["a comment line ends in a backslash without continuing", "# a \\\nFROM x\n", ["2 FROM x"]],
  ["a file may end inside a continuation", "RUN a \\\n", ["1 RUN a"]],
  ["names are upper-cased, leading blanks dropped", "  from x\n", ["1 FROM x"]],
  ["# escape= changes the continuation", "# escape=`\nRUN a `\nb\\\nRUN c\n", ["2 RUN a b\\", "4 RUN c"]],
  ["# escape= below a comment is a comment", "# x\n# escape=`\nRUN a\\\nb\n", ["3 RUN ab"]],
  ["an empty file has no instructions", "", []],
];
for (const [what, text, want] of LINES) {
  test(`parseDockerfile(): ${what}`, () => assert.deepEqual(brief(text), want));
}

test("parseDockerfile() collects heredocs and goes on behind them", () => {
  const [run, copy, last] = parseDockerfile(
    "RUN <<EOF\nset -e\n# kept\nEOF\nCOPY <<-'A' 3<<\"B C\" /x/\n\t$a\n\tA\nb\nB C\nRUN c\n",
  ).instructions as [Instruction, Instruction, Instruction];
  assert.deepEqual(run.heredocs, [{ name: "EOF", content: "set -e\n# kept\n", expand: true, chomp: false, fd: 0 }]);
  assert.equal(run.endLine, 4);
  assert.deepEqual(copy.heredocs, [
    { name: "A", content: "$a\n", expand: false, chomp: true, fd: 0 },
    { name: "B C", content: "b\n", expand: false, chomp: false, fd: 3 },
  ]);
  assert.deepEqual([last.name, last.args, last.line], ["RUN", "c", 10]);
});

test("parseDockerfile() ends an unterminated heredoc with the file", () => {
  const [run] = parseDockerfile("RUN <<EOF\na\n").instructions;
  assert.equal(run!.heredocs[0]!.content, "a\n");
});

const NOT_HEREDOCS = ["cat <<< word", "echo $((1<<2))", 'echo "<<EOF"', "echo a<<EOF", "echo '<<EOF'", "cat <<"];
for (const line of NOT_HEREDOCS) {
  test(`heredocWords() sees none in: ${line}`, () => assert.deepEqual(heredocWords(line), []));
}

test("parseDockerfile() takes flags off and reads JSON arguments", () => {
  const [run, cmd, bad] = parseDockerfile(
    'RUN --mount=type=cache,target=/x --network=none make --jobs\nCMD ["a", "b"]\nCMD [a]\n',
  )
    .instructions as [Instruction, Instruction, Instruction];
  assert.deepEqual([run.flags, run.rest], [["--mount=type=cache,target=/x", "--network=none"], "make --jobs"]);
  assert.deepEqual(cmd.json, ["a", "b"]);
  assert.equal(bad.json, undefined);
});

test("splitWords() keeps quotes and escape pairs inside words", () => {
  assert.deepEqual(splitWords(`a="b c"  d\\ e 'f g'`), [`a="b c"`, "d\\ e", "'f g'"]);
});

const oracle = join(
  process.env.GYM_HARBOR_DATA ?? "/nonexistent",
  "inputs/moby__buildkit/frontend/dockerfile/parser/testfiles",
);
test("E1: parseDockerfile() agrees with BuildKit's own parser files", {
  skip: !existsSync(oracle) && "GYM_HARBOR_DATA is not set",
}, () => {
  const files = readdirSync(oracle);
  assert.ok(files.length >= 30);
  for (const file of files) {
    const text = readFileSync(join(oracle, file, "Dockerfile"), "utf8");
    const want = readFileSync(join(oracle, file, "result"), "utf8").trim().split("\n").map(words);
    const got = parseDockerfile(text).instructions.map(shown);
    assert.deepEqual(got, want, file);
  }
});

/** BuildKit's dump of one node with the structure between words removed: names, flags and texts in order. */
function words(node: string): string {
  const strings = [...node.matchAll(/"((?:[^"\\]|\\.)*)"/g)].map((one) => unquoteGo(one[1]!));
  const name = /^\((\w+)/.exec(node)![1]!;
  const nested = /^\(onbuild \((\w+)/.exec(node)?.[1];
  const kept = strings.filter((one) => one !== "" && one !== "=");
  return [name, ...(nested ? [nested] : []), ...kept].join(" ").replace(/\s+/g, " ");
}

const unquoteGo = (text: string): string =>
  text.replace(
    /\\x([0-9a-f]{2})|\\(.)/g,
    (_, hex, char) =>
      hex
        ? String.fromCharCode(parseInt(hex, 16))
        : ({ n: "\n", t: "\t", r: "\r", a: "\x07", b: "\b", f: "\f", v: "\v" } as Record<string, string>)[char] ?? char,
  );

function shown(one: Instruction): string {
  const name = one.name.toLowerCase();
  const texts = one.json ?? [one.rest];
  let line = [name, ...one.flags, ...texts].filter((part) => part !== "").join(" ");
  if (name === "env" && one.rest.includes("=") && !/^\S+\s/.test(one.rest.split("=")[0]!)) {
    line = ["env", ...splitWords(one.rest).map((pair) => pair.replace("=", " "))].join(" ");
  }
  if (name === "onbuild" || name === "healthcheck") {
    line = line.replace(/\[.*\]/, (json) => (JSON.parse(json) as string[]).join(" ")).replace(
      /onbuild (\w+)/,
      (all) => all.toLowerCase(),
    );
  }
  return line.replace(/\s+/g, " ");
}
