import { test } from "node:test";
import assert from "node:assert/strict";
import { HarborError } from "../../../lib/errors.ts";
import { fnmatch, selectTasks } from "../../../lib/dataset/select.ts";

const MATCHES: [pattern: string, id: string, matches: boolean][] = [
  ["*", "a", true],
  ["a*", "abc", true],
  ["a*", "ba", false],
  ["A", "a", false],
  ["a?c", "abc", true],
  ["a?c", "ac", false],
  ["[ab]x", "bx", true],
  ["[!ab]x", "bx", false],
  ["[a-c]", "b", true],
  ["[c-a]", "b", false],
  ["[]]", "]", true],
  ["[!]]", "]", false],
  ["[-a]", "-", true],
  ["[a", "[a", true],
  ["a.c", "abc", false],
  ["a+(b)|{c}^$\\", "a+(b)|{c}^$\\", true],
  ["?", "é", true],
  ["?", "😀", true],
  ["[^a]", "^", true],
  ["*", "a\nb", true],
];
for (const [pattern, id, matches] of MATCHES) {
  test(`fnmatch() ${JSON.stringify(pattern)} ${matches ? "takes" : "leaves"} ${JSON.stringify(id)}`, () => {
    assert.equal(fnmatch(pattern)(id), matches);
  });
}

const IDS = ["alpha", "alpha-2", "beta", "gamma"];

test("selectTasks() keeps the order, splits comma lists and excludes last", () => {
  assert.deepEqual(selectTasks(IDS, {}), IDS);
  assert.deepEqual(selectTasks(IDS, { only: ["beta,alpha*"] }), ["alpha", "alpha-2", "beta"]);
  assert.deepEqual(selectTasks(IDS, { only: ["a*", "beta"], exclude: ["alpha"] }), ["alpha-2", "beta"]);
});

test("selectTasks() refuses a pattern that matches nothing, with at most five near names", () => {
  const many = ["alpah", ...Array.from({ length: 20 }, (_, index) => `zzzzzz${index}`)];
  assert.throws(() => selectTasks(many, { only: ["alpha"] }), (error: HarborError) => {
    assert.equal(error.code, "usage");
    assert.match(error.message, /--only-tasks 'alpha' matches no task of 21/);
    const near = error.details!.near as string[];
    assert.equal(near.length, 5);
    assert.equal(near[0], "alpah");
    return true;
  });
  assert.throws(() => selectTasks(IDS, { exclude: ["delta"] }), /--exclude-tasks 'delta' matches no task/);
});

test("selectTasks() refuses a selection that leaves nothing", () => {
  assert.throws(() => selectTasks(IDS, { exclude: ["*"] }), /leaves no task of 4/);
});
