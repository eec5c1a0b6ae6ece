import assert from "node:assert/strict";
import { test } from "node:test";
import { beginning, ending } from "../../lib/excerpt.ts";

const cases: [text: string, limit: number, beginning: string, ending: string][] = [
  ["short", 5, "short", "short"],
  ["longer", 5, "long…", "onger"],
  ["ab😀cd", 4, "ab…", "😀cd"],
  ["ab😀cd", 3, "ab…", "cd"],
];
for (const [text, limit, first, last] of cases) {
  test(`beginning() and ending() of ${text} within ${limit}`, () => {
    assert.equal(beginning(text, limit), first);
    assert.equal(ending(text, limit), last);
  });
}
