import assert from "node:assert/strict";
import { test } from "node:test";
import type { EpisodePlan } from "../../../lib/episode/plan.ts";
import { Known, maxAttempts, owed } from "../../../lib/rollouts/owed.ts";
import type { Task } from "../../../lib/task/task.ts";

const plan = (id: string, digest = "d"): EpisodePlan => ({
  task: { id } as Task,
  taskIndex: 0,
  digest,
  rolloutIndex: 0,
  attempt: 0,
});
const row = (id: string, changes: object = {}) => ({
  _ng_task_id: { taskset: "s", task_id: id },
  _ng_rollout_index: 0,
  _ng_digest: "d",
  ...changes,
});

test("R1: owed() gives what has no result, no terminal failure and attempts left", () => {
  const known = new Known();
  known.addResult(row("A", { reward: 0 }));
  known.addFailure(row("B"));
  known.addResult(row("B", { _ng_attempt_index: 1 }));
  for (let attempt = 0; attempt < 3; attempt++) known.addFailure(row("C", { _ng_attempt_index: attempt }));
  known.addFailure(row("D", { _ng_failure_terminal: true }));
  known.addFailure(row("G"));
  const left = [...owed(["A", "B", "C", "D", "E", "G"].map((id) => plan(id)), known, 3)];
  assert.deepEqual(left.map(({ task, attempt }) => [task.id, attempt]), [["E", 0], ["G", 1]]);
});

test("I1: a masked result is a result", () => {
  const known = new Known();
  known.addResult(row("A", { mask_sample: true }));
  assert.deepEqual([...owed([plan("A")], known, 3)], []);
});

test("owed() does not count rows of another digest", () => {
  const known = new Known();
  known.addResult(row("A", { _ng_digest: "old" }));
  known.addFailure(row("A", { _ng_digest: "old", _ng_failure_terminal: true }));
  assert.deepEqual([...owed([plan("A")], known, 3)].map(({ attempt }) => attempt), [0]);
});

test("maxAttempts() takes a positive integer and warns of anything else", () => {
  const warnings: string[] = [];
  const of = (value?: string) => maxAttempts({ NEMO_GYM_MAX_ROLLOUT_ATTEMPTS: value }, (text) => warnings.push(text));
  assert.deepEqual([of(), of("5"), of("0"), of("x"), of("")], [3, 5, 3, 3, 3]);
  assert.equal(warnings.length, 2);
});
