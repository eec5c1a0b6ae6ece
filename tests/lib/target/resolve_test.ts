import { test } from "node:test";
import assert from "node:assert/strict";
import type { HarborError } from "../../../lib/errors.ts";
import { resolveTarget } from "../../../lib/target/resolve.ts";
import { writeTree } from "../../support/tree.ts";

test("resolveTarget() tells a task from a dataset and names both folders", () => {
  using tree = writeTree({ "set/one/task.toml": "", "set/x": "" }, "top");
  assert.deepEqual(resolveTarget("set/one/", tree.path), {
    kind: "task",
    named: "set/one",
    folder: tree.at("set/one"),
    datasetFolder: tree.at("set"),
    taskset: "one",
  });
  const { kind, datasetFolder, taskset } = resolveTarget(".", tree.at("set"));
  assert.deepEqual([kind, datasetFolder, taskset], ["dataset", tree.at("set"), "set"]);
});

const REFUSED: [named: string, code: string, message: RegExp, hint: RegExp][] = [
  ["nowhere", "target.missing", /^nowhere does not exist$/, /task folder/],
  ["sett", "target.missing", /^sett does not exist$/, /did you mean set\?/],
  ["set/x/y", "target.missing", /does not exist/, /task folder/],
  ["set/x", "usage", /^set\/x is not a directory$/, /task folder/],
  ["set/one/task.toml", "usage", /is not a directory/, /name the folder: set\/one/],
  ["", "usage", /empty/, /task folder/],
  ["harbor:org/name", "not-built", /harbor:org\/name/, /fetch/],
  ["entry", "not-built", /entry is an entry name/, /environments\/harbor\/entry/],
  ["x".repeat(300), "target.missing", /the name is too long/, /task folder/],
];
for (const [named, code, message, hint] of REFUSED) {
  test(`resolveTarget(${named.slice(0, 30)}) is ${code}`, () => {
    using tree = writeTree({ "set/one/task.toml": "", "set/x": "", "environments/harbor/entry/x": "" }, "top");
    assert.throws(() => resolveTarget(named, tree.path), (error: HarborError) => {
      assert.equal(error.code, code);
      assert.match(error.message, message);
      assert.match(error.hint!, hint);
      return true;
    });
  });
}
