import { test } from "node:test";
import assert from "node:assert/strict";
import { isUtf8Locale, stderrTerminal, terminalText, visible } from "../../../lib/runtime/terminal.ts";

for (
  const [what, text, shown] of [
    ["escape sequences", "a\x1b[31mred\x1b]0;t\x07", "a\\x1b[31mred\\x1b]0;t\\x07"],
    ["C1 codes", "a\u009b2Jb", "a\\x9b2Jb"],
    ["carriage returns", "100%\rdone", "100%\\x0ddone"],
    ["bidirectional overrides", "a\u202eb", "a\\u202eb"],
    ["nothing in ordinary text", "ä € 日本 😀\tx\ny", "ä € 日本 😀\tx\ny"],
  ] as const
) {
  test(`visible() shows ${what}`, () => assert.equal(visible(text), shown));
}

for (
  const [env, utf8] of [
    [{}, false],
    [{ LANG: "C.UTF-8" }, true],
    [{ LANG: "de_DE.utf8" }, true],
    [{ LANG: "en_US.UTF-8", LC_ALL: "C" }, false],
    [{ LANG: "C", LC_CTYPE: "en_US.UTF-8" }, true],
    [{ LANG: "en_US.ISO-8859-1" }, false],
  ] as const
) {
  test(`isUtf8Locale() is ${utf8} for ${JSON.stringify(env)}`, () => assert.equal(isUtf8Locale(env), utf8));
}

test("terminalText() types our signs where the locale is not UTF-8, and leaves names alone", () => {
  assert.equal(terminalText({ LC_ALL: "C" })("2 × 3 ≤ 7 … ä\x1b"), "2 x 3 <= 7 ... ä\\x1b");
  assert.equal(terminalText({ LANG: "C.UTF-8" })("2 × 3 …"), "2 × 3 …");
});

test("a dumb terminal and CI get no live screen", () => {
  for (const env of [{ TERM: "dumb" }, { CI: "true" }]) assert.equal(stderrTerminal(env).live, false);
});
