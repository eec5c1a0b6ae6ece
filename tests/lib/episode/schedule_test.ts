import assert from "node:assert/strict";
import { test } from "node:test";
import { HarborError } from "../../../lib/errors.ts";
import { schedule } from "../../../lib/episode/schedule.ts";
import type { Outcome } from "../../../lib/rollouts/schema.ts";
import { episodeDeps, planOf } from "../../support/episode.ts";
import { FakeProvider } from "../../support/fake_provider.ts";
import { plainTask } from "../../support/loaded_task.ts";
import { TempFolder } from "../../support/tasks.ts";

const plans = (folder: TempFolder, count: number) =>
  Array.from({ length: count }, (_, taskIndex) => planOf(plainTask(folder.path, `t${taskIndex}`), { taskIndex }));

test("schedule() records an outcome before it tells it, and cleans up before it records", async () => {
  using folder = new TempFolder("order");
  const provider = new FakeProvider();
  const deps = episodeDeps(provider, folder.path);
  const log: string[] = [];
  const emit: typeof deps.emit = (event) => {
    if (event.kind === "finished") log.push(`told ${event.task} ${event.outcome} ${event.reward}`);
  };
  const record = ({ row }: Outcome) => {
    log.push(`open ${provider.open_}, recorded ${row._ng_task_id.task_id}`);
    return Promise.resolve();
  };
  await schedule(plans(folder, 2), { ...deps, emit, concurrency: 1, record }, new AbortController().signal);
  assert.deepEqual(log, [
    "open 0, recorded t0",
    "told t0 scored 1",
    "open 0, recorded t1",
    "told t1 scored 1",
  ]);
});

test("disk full: a row that cannot be written ends the run, cancels the others and is acknowledged to nobody", async () => {
  using folder = new TempFolder("full");
  let verified = 0;
  const hang = { until: new Promise(() => {}) };
  const provider = new FakeProvider({
    answers: { verifier: () => (++verified === 2 ? { files: { "reward.txt": "1" } } : hang) },
  });
  const deps = episodeDeps(provider, folder.path);
  const record = () => Promise.reject(new HarborError("store.unwritable", "Cannot write rollouts.jsonl: ENOSPC"));
  const running = schedule(plans(folder, 5), { ...deps, concurrency: 2, record }, new AbortController().signal);
  await assert.rejects(running, { code: "store.unwritable" });
  assert.equal(provider.open_, 0);
  assert.equal(provider.specs.length, 2, "nothing is admitted after it");
  const ends = deps.events.flatMap((event) => (event.kind === "finished" ? [event.outcome] : []));
  assert.deepEqual(ends, ["cancelled", "cancelled"]);
});
