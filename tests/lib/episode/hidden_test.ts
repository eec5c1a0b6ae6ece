import assert from "node:assert/strict";
import { test } from "node:test";
import { hiddenPaths } from "../../../lib/episode/hidden.ts";
import { runPaths } from "../../../lib/rollouts/paths.ts";

const paths = (output: string) => runPaths({ cwd: "/work", taskset: "s", agentName: "nop", validation: false, output });

test("hiddenPaths() are the target and the results folder", () => {
  assert.deepEqual(hiddenPaths("/data/set", ["/data/set/a"], paths("/data/out/r.jsonl")), ["/data/set", "/data/out"]);
});

test("hiddenPaths() of a single task leave its neighbours' folder alone", () => {
  assert.equal(hiddenPaths("/tmp/task", ["/tmp/task"], paths("/x/r.jsonl"))[0], "/tmp/task");
});

test("hiddenPaths() never hide a folder that everybody uses", () => {
  const hidden = hiddenPaths("/opt", ["/opt/a", "/opt/b"], paths("/tmp/r.jsonl"));
  assert.deepEqual(hidden.slice(0, 4), ["/opt/a", "/opt/b", "/tmp/r.jsonl", "/tmp/r_failures.jsonl"]);
  assert.ok(hidden.includes("/tmp/verifier") && hidden.includes("/tmp/r.jsonl.bak"));
  assert.ok(!hidden.includes("/tmp"));
});
