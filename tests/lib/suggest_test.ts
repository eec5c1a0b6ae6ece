import { test } from "node:test";
import assert from "node:assert/strict";
import { nearest } from "../../lib/suggest.ts";

for (
  const [word, candidates, near] of [
    ["timout_sec", ["timeout_sec", "user"], "timeout_sec"],
    ["JSON", ["json"], "json"],
    ["chek", ["check", "digest"], "check"],
    ["xy", ["ab", "cd"], undefined],
    ["run", ["rust", "ruin"], "ruin"],
    ["", ["a"], "a"],
    ["anything", [], undefined],
  ] as const
) {
  test(`nearest() answers ${JSON.stringify(word)} with ${near}`, () => {
    assert.equal(nearest(word, candidates), near);
  });
}
