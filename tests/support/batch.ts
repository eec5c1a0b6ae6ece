/**
 * Many small cases, one run: each case is a task folder and what its row must say. All cases of a file are validated by
 * one call of the program per sandbox, as a user would run a dataset, and each case is a test of its own. That is
 * quick, and it also proves that one task's misbehaviour does not touch its neighbours.
 */
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after } from "node:test";
import { hostIsOutOfReach } from "./canary.ts";
import type { CliOptions } from "./cli.ts";
import { looksLikeStackTrace } from "./cli.ts";
import { sandboxes, type SandboxName, sandboxTest } from "./kit.ts";
import { type Row, rowOf, type RunFiles, type TaskSpec, TempFolder, validate, writeFiles } from "./tasks.ts";
import { taskFiles } from "./tasks.ts";

export interface Case {
  /** Row of the field cases (`A1`), or a few words for a case of our own. */
  id: string;
  title: string;
  /** Sandboxes it makes sense on; default all. */
  on?: readonly SandboxName[];
  task: TaskSpec;
  expect: (seen: Seen) => void;
}

/** What the run says about one task. */
export interface Seen {
  sandbox: SandboxName;
  row: Row | undefined;
  failure: Row | undefined;
  run: RunFiles;
  /** Text of a file in the row's log folder; undefined when absent. */
  log(name: string): string | undefined;
  /** For messages of assertions: the row and the end of what was printed. */
  told: string;
}

export interface BatchOptions {
  name: string;
  sandboxes?: readonly SandboxName[];
  args?: (sandbox: SandboxName) => Promise<readonly string[]>;
  cli?: CliOptions;
}

/** Declares one test per case and sandbox; the first of a sandbox starts the run. */
export function batch(cases: readonly Case[], options: BatchOptions): void {
  for (const sandbox of sandboxes(options.sandboxes)) {
    const chosen = cases.filter((one) => one.on === undefined || one.on.includes(sandbox));
    const folder = new TempFolder(options.name);
    after(() => folder[Symbol.dispose]());
    let started: Promise<RunFiles> | undefined;
    const run = async (): Promise<RunFiles> => {
      if (sandbox === "host") await hostIsOutOfReach();
      chosen.forEach((one, index) => writeFiles(folder.join("data", taskName(one, index)), taskFiles(one.task)));
      return await validate(
        folder.join("data"),
        folder.join("out", "rollouts.jsonl"),
        ["--sandbox", sandbox, "--concurrency", "2", ...(await options.args?.(sandbox) ?? [])],
        { timeoutMs: 600_000, ...options.cli },
      );
    };
    chosen.forEach((one, index) => {
      sandboxTest(sandbox, `${one.id}: ${one.title}`, async () => {
        started ??= run();
        const files = await started;
        one.expect(seen(files, taskName(one, index), sandbox));
      });
    });
    sandboxTest(sandbox, `${options.name}: the run ends as a whole`, async () => {
      started ??= run();
      const files = await started;
      assert.equal(files.signal, null, "the program did not end by itself");
      assert.ok(!looksLikeStackTrace(files.stderr), files.stderr.slice(-3000));
      const ids = [...files.rows, ...files.failures].map((row) => row._ng_task_id.task_id).sort();
      const skipped = [...Object.keys(files.skipped), ...Object.keys(files.summary?.unvalidated ?? {})];
      assert.deepEqual([...ids, ...skipped].sort(), chosen.map(taskName).sort(), "every task has one row, or a reason");
    });
  }
}

const taskName = (one: Case, index: number): string =>
  `${String(index).padStart(2, "0")}-${one.id}-${one.title}`.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-").slice(0, 60)
    .replace(/-$/, "");

function seen(run: RunFiles, task: string, sandbox: SandboxName): Seen {
  const row = rowOf(run.rows, task);
  const failure = rowOf(run.failures, task);
  return {
    sandbox,
    row,
    failure,
    run,
    log(name) {
      const path = join(String(row?.verifier_logs_dir), name);
      return existsSync(path) ? readFileSync(path, "utf8") : undefined;
    },
    told: `${task}: ${JSON.stringify(row ?? failure ?? run.skipped[task] ?? "no row", shorten, 1)}\n${
      row ?? failure ? "" : `exit ${run.code}\n${run.stderr.slice(-2000)}`
    }`,
  };
}

/** Keeps rows readable in messages. */
const shorten = (key: string, value: unknown): unknown =>
  key === "response" || key === "responses_create_params" || key === "_ng_failure_report" ? "…" : value;

/** A scored row: this reward, this kind (null: none), and what its reason must say. */
export function scored(seen: Seen, reward: number, kind: string | null = null, reason?: RegExp): Row {
  assert.ok(seen.row !== undefined, seen.told);
  assert.equal(seen.row.mask_sample, false, seen.told);
  assert.equal(seen.row.reward, reward, seen.told);
  assert.equal(seen.row.failure_kind ?? null, kind, seen.told);
  if (reason !== undefined) assert.match(String(seen.row.failure_reason), reason, seen.told);
  return seen.row;
}

/** A masked row or a failure row, never a reward: a fault that is not the solution's. Returns its whole text. */
export function notScored(seen: Seen, says?: RegExp): string {
  if (seen.row !== undefined) {
    assert.equal(seen.row.mask_sample, true, seen.told);
    assert.equal(seen.row.reward, 0, seen.told);
  } else {
    assert.ok(seen.failure !== undefined, seen.told);
    assert.equal("reward" in seen.failure, false, seen.told);
  }
  const text = seen.row === undefined
    ? `${seen.failure!.failure_kind}: ${seen.failure!._ng_failure_message}`
    : `${seen.row.failure_kind}: ${seen.row.failure_reason}`;
  if (says !== undefined) assert.match(text, says, seen.told);
  return text;
}

/** The notes of a row: everything that was not as the task asked. */
export function notesOf(row: Row): string {
  return (row.sandbox?.notes ?? []).join("\n");
}
