import assert from "node:assert/strict";
import { test } from "node:test";
import { HarborError } from "../../../lib/errors.ts";
import { parsePatterns, verdictOn } from "../../../lib/files/gitignore.ts";

const excluded = (text: string, dialect: "git" | "harbor", paths: string[]) =>
  paths.filter((path) => verdictOn(parsePatterns(text, dialect, "f"), path) === true);

const FILES = [
  "a.log",
  "A.LOG",
  "ab",
  "ac",
  "sub/ab",
  "sub/deep/ab",
  "out/keep",
  "out/sub/keep",
  "a b",
  "#x",
  "!y",
  "a*b",
];

// What pathspec 1.1.1 answers through Harbor 0.25.0's package hash.
const GIT: [string, string[]][] = [
  ["ab\n", ["ab", "sub/ab", "sub/deep/ab"]],
  ["/ab\n", ["ab"]],
  ["*.log\n", ["a.log"]],
  ["sub/\n", ["sub/ab", "sub/deep/ab", "out/sub/keep"]],
  ["sub/\n!ab\n", ["out/sub/keep"]],
  ["sub/*\n", ["sub/ab"]],
  ["sub/**\n", ["sub/ab", "sub/deep/ab"]],
  ["**/ab\n", ["ab", "sub/ab", "sub/deep/ab"]],
  ["sub/**/ab\n", ["sub/ab", "sub/deep/ab"]],
  ["out/\n!out/keep\n", ["out/sub/keep"]],
  ["a[bc]\n", ["ab", "ac", "sub/ab", "sub/deep/ab"]],
  ["a[!b]\n", ["ac"]],
  ["a?\n", ["ab", "ac", "sub/ab", "sub/deep/ab"]],
  ["a\\*b\n", ["a*b"]],
  ["\\#x\n\\!y\n", ["#x", "!y"]],
  ["#x\n", []],
  ["a b \n", ["a b"]],
  ["ab\rac\n", ["ab", "ac", "sub/ab", "sub/deep/ab"]],
  ["\ufeffab\n", []],
  ["/\n", FILES],
  ["*\n!ab\n", FILES.filter((path) => !path.endsWith("ab"))],
  ["a[b\n", []],
];
for (const [text, wanted] of GIT) {
  test(`patterns exclude as Harbor's .gitignore does: ${JSON.stringify(text)}`, () => {
    assert.deepEqual(excluded(text, "git", FILES), wanted);
  });
}

// The same through `.harborignore`: an entry is judged once the folders above it are in, so a match by one of those
// is an echo, and weighs less than a match of the entry's own whole path.
const HARBOR: [string, string[]][] = [
  ["sub/\n", ["sub/", "sub/ab", "sub/deep/"]],
  ["ab\n", ["sub/ab", "ab"]],
  ["/*\n!/\n", ["ab", "sub"]],
  ["!**/*\nsub/\n", []],
  ["sub/\n!*p\n", ["sub/", "sub/ab"]],
  ["**/*/**\n", ["sub/", "sub/ab", "sub/deep/"]],
  ["[ab\n/\n", []],
  ["[/a\\\n", []],
];
for (const [text, wanted] of HARBOR) {
  test(`patterns exclude as Harbor's .harborignore does: ${JSON.stringify(text)}`, () => {
    assert.deepEqual(excluded(text, "harbor", ["sub/", "sub/ab", "ab", "sub/deep/", "sub"]), wanted);
  });
}

for (const bad of ["!", "\\", "ab\\", "a\\/b", "[z-a]", "x[b--]"]) {
  test(`parsePatterns() names the file and line of a bad pattern: ${bad}`, () => {
    assert.throws(() => parsePatterns(`ok\n${bad}\n`, "git", "tests/.harborignore"), (error: HarborError) => {
      assert.equal(error.code, "task.invalid");
      assert.ok(error.message.startsWith("tests/.harborignore:2: "), error.message);
      return true;
    });
  });
}

test("patterns made to be slow are not", () => {
  const name = "a".repeat(250);
  const deep = "a/".repeat(500);
  for (
    const [text, path] of [
      [`${"*a".repeat(40)}*b\n`, name],
      [`${"**/a/".repeat(40)}b\n`, `${deep}c`],
      [`${"**/*a*a*/".repeat(20)}b\n`, `${deep}c`],
      [`${"*".repeat(200)}b\n`, name],
      [`${"?*".repeat(60)}b\n`, name],
    ] as const
  ) {
    for (const dialect of ["git", "harbor"] as const) {
      const began = performance.now();
      assert.equal(verdictOn(parsePatterns(text, dialect, "f"), path), undefined);
      assert.ok(performance.now() - began < 1000, `${dialect} ${text}: ${performance.now() - began} ms`);
    }
  }
});

test("patterns with many stars still match all they should", () => {
  for (
    const [text, path] of [
      ["a*b*c*d\n", "axbxbxcxcd"],
      ["a*b*c*d\n", "abcd"],
      ["*a*?b\n", "aab"],
      ["*[ab]*[bc]*c\n", "bbc"],
      ["**/a/**/b/**/c\n", "x/a/a/b/y/b/c"],
      ["**/a/**/b/c\n", "a/b/x/b/c"],
      ["a/**/b/**/c\n", "a/b/c"],
    ] as const
  ) assert.equal(verdictOn(parsePatterns(text, "git", "f"), path), true, text);
});
