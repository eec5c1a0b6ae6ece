import assert from "node:assert/strict";
import { test } from "node:test";
import { Refusals } from "../../../lib/files/refusals.ts";

test("Refusals names the first hundred and counts the rest", () => {
  const refusals = new Refusals();
  assert.deepEqual(refusals.list(), []);
  for (let index = 0; index < 100; index++) refusals.add(`f${index}`, "a socket");
  assert.equal(refusals.list().length, 100);
  refusals.add("f100", "a socket");
  refusals.add("f101", "a socket");
  assert.deepEqual(refusals.list().slice(-2), [
    { path: "f99", reason: "a socket" },
    { path: "…", reason: "2 more entries were left out" },
  ]);
});
