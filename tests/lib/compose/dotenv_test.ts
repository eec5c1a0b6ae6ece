import assert from "node:assert/strict";
import { test } from "node:test";
import { DotenvError, parseDotenv } from "../../../lib/compose/dotenv.ts";

const variables = { get: (name: string) => (name === "HOST" ? "h" : undefined), missing: () => {} };
const parse = (text: string, raw = false) => Object.fromEntries(parseDotenv(text, { variables, raw }));

test("parseDotenv() reads the forms that Compose reads", () => {
  const rows: [text: string, wanted: Record<string, string | null>][] = [
    ["A=1\r\nB = two \n", { A: "1", B: "two" }],
    ["\uFEFFA=1", { A: "1" }],
    ["# note\n\n  # more\nA=1", { A: "1" }],
    ["export A=1\nexport  B='x'", { A: "1", B: "x" }],
    ["A=one # note\nB=one#two\nC=#all", { A: "one", B: "one#two", C: "" }],
    ["A='$HOST \\n # x'", { A: "$HOST \\n # x" }],
    ['A="$HOST\\t\\"q\\" \\$HOST" # note', { A: 'h\t"q" $HOST' }],
    ["A=$HOST-${NONE:-d}", { A: "h-d" }],
    ["A=1\nB=${A}2", { A: "1", B: "12" }],
    ['A="one\ntwo"\nB=3', { A: "one\ntwo", B: "3" }],
    ["A='one\n\ntwo'", { A: "one\n\ntwo" }],
    ["A=", { A: "" }],
    ["A", { A: null }],
    ["export A", { A: null }],
    ["A: 1", { A: "1" }],
    ["A.b-c=1", { "A.b-c": "1" }],
    ["A=1\nA=2", { A: "2" }],
    ['A=it\'s "fine"', { A: 'it\'s "fine"' }],
    ["A==x=", { A: "=x=" }],
  ];
  for (const [text, wanted] of rows) assert.deepEqual(parse(text), wanted, JSON.stringify(text));
});

test("parseDotenv() takes a raw file to the letter", () => {
  assert.deepEqual(parse("A= \"$HOST\" # no note\nB='x'", true), { A: ' "$HOST" # no note', B: "'x'" });
});

test("parseDotenv() names the line that it cannot read", () => {
  const rows: [text: string, message: RegExp][] = [
    ["A=1\n2B=x", /^line 2 is neither/],
    ["A=1\n\nhello world", /^line 3 is neither/],
    ['A="open', /^line 1 opens a " that nothing closes/],
    ["A='x' y", /^line 1 goes on after its closing quote/],
    ["A=${B", /^line 1 \(A\) has a \$\{ that nothing closes/],
  ];
  for (const [text, message] of rows) {
    assert.throws(() => parse(text), (error) => error instanceof DotenvError && message.test(error.message), text);
  }
});
