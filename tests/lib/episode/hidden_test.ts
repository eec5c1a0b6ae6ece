import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { hiddenPaths, neighboursOf } from "../../../lib/episode/hidden.ts";
import { runPaths } from "../../../lib/rollouts/paths.ts";

const paths = (output: string) => runPaths({ cwd: "/work", taskset: "s", agentName: "nop", validation: false, output });

test("hiddenPaths() are the target and the results folder", () => {
  assert.deepEqual(hiddenPaths("/data/set", ["/data/set/a"], paths("/data/out/r.jsonl")), ["/data/set", "/data/out"]);
});

test("A16: neighboursOf() are the other tasks of a single task's dataset and its verifier, nothing else", () => {
  const dataset = mkdtempSync(join(tmpdir(), "neighbours-"));
  try {
    for (const name of ["a", "b", "other"]) mkdirSync(join(dataset, name));
    for (const name of ["a/task.toml", "b/task.toml", "verifier.py", "notes"]) writeFileSync(join(dataset, name), "");
    const found = neighboursOf(dataset);
    assert.deepEqual(found, ["a", "b", "verifier.py"].map((name) => join(dataset, name)));
    assert.deepEqual(hiddenPaths(join(dataset, "a"), [], paths("/x/r.jsonl"), found).slice(1, 4), found);
    assert.deepEqual(neighboursOf(join(dataset, "absent")), []);
  } finally {
    rmSync(dataset, { recursive: true });
  }
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
