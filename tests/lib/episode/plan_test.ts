import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import process from "node:process";
import { budgetSec, captureKey, expand, notInThisVersion, trialName } from "../../../lib/episode/plan.ts";
import { episodeSettings } from "../../../lib/episode/settings.ts";
import { entrypointArgv } from "../../../lib/episode/health.ts";
import type { Task } from "../../../lib/task/task.ts";
import { plainTask } from "../../support/loaded_task.ts";
import { TempFolder } from "../../support/tasks.ts";

function withTask(check: (task: Task) => void): void {
  using folder = new TempFolder("plan");
  check(plainTask(folder.path));
}

test("expand() numbers repeats task by task, and attempts name themselves", () =>
  withTask((task) => {
    const tasks = [{ task, taskIndex: 0, digest: "a" }, { task, taskIndex: 4, digest: "b" }];
    assert.deepEqual([...expand(tasks, 2)].map(captureKey), ["0-0", "0-1", "4-0", "4-1"]);
    assert.equal(captureKey({ taskIndex: 4, rolloutIndex: 1, attempt: 2 }), "4-1-a2");
  }));

test("budgetSec() adds up what an episode may take, and is none where timeouts are not enforced", () =>
  withTask((task) => {
    const settings = episodeSettings();
    assert.equal(budgetSec(task, settings), 300 + 900 + 600 + 30);
    const hook = { command: "x", service: "main", timeout_sec: 7 };
    const healthcheck = {
      command: "x",
      interval_sec: 1,
      timeout_sec: 2,
      start_period_sec: 5,
      start_interval_sec: 1,
      retries: 3,
    };
    const more = {
      ...task,
      verifier: { ...task.verifier, collect: [hook] },
      environment: { ...task.environment, healthcheck },
    };
    assert.equal(budgetSec(more, settings), 1830 + 7 + 5 + 3 * 3);
    assert.equal(budgetSec(task, episodeSettings({ enforce_task_timeouts: false })), null);
  }));

const unbuilt: [string, (task: Task) => Partial<Task>, string | null][] = [
  ["a plain task", () => ({}), null],
  ["steps", () => ({ steps: [{} as never] }), "not in this version: steps"],
  ["a separate verifier", () => ({ verifierMode: "separate" }), "not in this version: separate verifier"],
  ["Compose", () => ({ image: { mode: "compose", uploads: false } }), null],
  [
    "an allow list",
    (task) => ({ environment: { ...task.environment, network_mode: "allowlist" } }),
    "not in this version: network_mode allowlist",
  ],
  [
    "an allow list of one phase",
    (task) => ({ verifier: { ...task.verifier, network_mode: "allowlist" } }),
    "not in this version: network_mode allowlist",
  ],
  [
    "a phase with another network",
    () => ({ agent: { timeout_sec: 1, network_mode: "no-network" } }),
    'not in this version: per-phase networks ([agent].network_mode = "no-network")',
  ],
  [
    "phases that name the environment's network",
    (task) => ({
      environment: { ...task.environment, network_mode: "no-network" },
      agent: { timeout_sec: 1, network_mode: "no-network" },
    }),
    null,
  ],
];
for (const [what, changes, reason] of unbuilt) {
  test(`D6: notInThisVersion() of ${what}`, () =>
    withTask((task) => assert.equal(notInThisVersion({ ...task, ...changes(task) }), reason)));
}

const entrypoints: [string[], string[] | null][] = [
  [[], null],
  [["/bin/bash"], null],
  [["/bin/sh", "-c"], null],
  [["/bin/sh", "/start.sh"], ["/bin/sh", "/start.sh", "sh", "-c", "sleep infinity"]],
  [["docker-entrypoint.sh"], ["docker-entrypoint.sh", "sh", "-c", "sleep infinity"]],
  [["tini", "--", "bash", "-c"], ["tini", "--", "bash", "-c", "sleep infinity"]],
];
for (const [given, wanted] of entrypoints) {
  test(`entrypointArgv() of ${JSON.stringify(given)}`, () => assert.deepEqual(entrypointArgv(given), wanted));
}

test("trialName() keeps 32 characters of the short name without trailing dashes", () => {
  assert.equal(trialName("org/hello-", "abcdefg"), "hello__abcdefg");
  assert.equal(trialName(`${"x".repeat(31)}--y`, "abcdefg"), `${"x".repeat(31)}__abcdefg`);
});

const path = join(process.env.GYM_HARBOR_DATA ?? "/nonexistent", "vectors/harbor-0.25.0/trial-names.jsonl");
test("trialName() names trials as Harbor 0.25.0 does", {
  skip: existsSync(path) ? false : "GYM_HARBOR_DATA names no folder with vectors",
}, () => {
  for (const line of readFileSync(path, "utf8").trimEnd().split("\n")) {
    const row = JSON.parse(line) as { task_folder?: string; package?: string; prefix: string };
    assert.equal(trialName((row.task_folder ?? row.package)!, "abcdefg"), `${row.prefix}__abcdefg`);
  }
});
