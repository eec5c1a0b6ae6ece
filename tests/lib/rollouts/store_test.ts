import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { test } from "node:test";
import type { ResultRow } from "../../../lib/rollouts/schema.ts";
import { runPaths } from "../../../lib/rollouts/paths.ts";
import { RunStore } from "../../../lib/rollouts/store.ts";
import { type Clock, systemClock } from "../../../lib/runtime/clock.ts";
import { readRows, TempFolder } from "../../support/tasks.ts";

const row = { reward: 1 } as ResultRow;

test("a run whose files another one took over writes no more rows and no summary", async () => {
  using temp = new TempFolder("store");
  let beat = () => {};
  const clock: Clock = { ...systemClock, every: (_ms, act) => (beat = act, { [Symbol.dispose]: () => {} }) };
  const paths = runPaths({ cwd: temp.path, taskset: "s", agentName: "nop", validation: false, output: "r.jsonl" });
  await using store = await RunStore.open(paths, { clock, signal: new AbortController().signal, note: () => {} });
  await store.begin();
  await store.append({ kind: "result", row });
  writeFileSync(paths.lock, JSON.stringify({ host: "elsewhere", pid: 1, start: "", token: "other" }));
  beat();
  await assert.rejects(store.append({ kind: "result", row }), { code: "store.locked" });
  await assert.rejects(store.write(paths.summary, "{}"), { code: "store.locked" });
  assert.equal(readRows(paths.rollouts).length, 1);
});
