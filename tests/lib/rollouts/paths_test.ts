import assert from "node:assert/strict";
import { test } from "node:test";
import { runPaths } from "../../../lib/rollouts/paths.ts";

const facts = { cwd: "/work", taskset: "my-dataset", agentName: "nop", validation: false };

test("runPaths() puts a run below results/harbor, a validation below validation/", () => {
  assert.equal(runPaths(facts).rollouts, "/work/results/harbor/my-dataset/rollouts.jsonl");
  assert.equal(
    runPaths({ ...facts, validation: true }).summary,
    "/work/results/harbor/validation/my-dataset/rollouts_run_summary.json",
  );
});

test("runPaths() puts the other files beside --output, named by its stem", () => {
  const paths = runPaths({ ...facts, output: "out/mine.jsonl" });
  assert.deepEqual(
    [paths.failures, paths.summary, paths.lock, paths.taskRows, paths.verifier],
    [
      "/work/out/mine_failures.jsonl",
      "/work/out/mine_run_summary.json",
      "/work/out/mine_run.lock",
      "/work/out/tasks_nop.jsonl",
      "/work/out/verifier",
    ],
  );
});

test("runPaths() refuses an --output that is no .jsonl file", () => {
  assert.throws(() => runPaths({ ...facts, output: "out" }), { code: "usage", message: /must end in \.jsonl/ });
});
