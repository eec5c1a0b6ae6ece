/**
 * A whole run: from planned tasks to rows, summary and files. It is the order of the arrows (design, "The flow"); every
 * arrow is a function of its own. Nothing of an earlier run is touched before the sandbox and the images are known to
 * be there; the summary is written whatever happens after that.
 */
import { existsSync } from "node:fs";
import { HarborError } from "../errors.ts";
import type { Agent } from "../agent/agent.ts";
import type { Emit } from "../events.ts";
import { Known, maxAttempts, owed } from "../rollouts/owed.ts";
import type { RunPaths } from "../rollouts/paths.ts";
import { changedTasks, indexes, readSaved, refuseOthers, type Saved } from "../rollouts/resume.ts";
import { RowMaker } from "../rollouts/rows.ts";
import { RunStore } from "../rollouts/store.ts";
import type { Outcome, ReadMaterialized, ReadRow } from "../rollouts/schema.ts";
import {
  type RecordFacts,
  recordOf,
  Records,
  runSummary,
  type SummaryFacts,
  type TaskRecord,
} from "../report/summary.ts";
import type { Clock } from "../runtime/clock.ts";
import type { Owner } from "../sandbox/owner.ts";
import type { SandboxProvider } from "../sandbox/provider.ts";
import type { Task } from "../task/task.ts";
import { type CopyDeps, TaskCopies } from "./copies.ts";
import { type PreparedImages, prepareImages } from "./images.ts";
import { type EpisodePlan, expand, notInThisVersion, type PlannedTask } from "./plan.ts";
import { schedule } from "./schedule.ts";
import type { EpisodeSettings } from "./settings.ts";

/** What is to be run. */
export interface Evaluation {
  command: SummaryFacts["command"];
  /** As typed. */
  target: string;
  taskset: string;
  taskSource: string;
  dataset: SummaryFacts["dataset"];
  /** Selected tasks that load, in selection order, with their effective digests. */
  tasks: { task: Task; digest: string }[];
  /** Task id → why it did not load. */
  unloadable: Record<string, string>;
  agent: Agent;
  settings: EpisodeSettings;
  repeats: number;
  concurrency: number;
  resume: boolean;
  keepFailed: boolean;
  createParams: Record<string, unknown>;
  paths: RunPaths;
  /** Paths of this machine that no task may see (hidden.ts). */
  hide: string[];
  /** Text of run_config_<agent>.yaml, once the run's tasks are known. */
  runConfig(tasks: readonly PlannedTask[]): string;
}

export interface EvaluationDeps {
  /** Made on first need: a run without tasks to run needs no sandbox. */
  provider(): Promise<SandboxProvider>;
  clock: Clock;
  emit: Emit;
  owner: Owner;
  /** Private folder of the run. */
  scratch: string;
  hostEnv: Readonly<Record<string, string | undefined>>;
  version: string;
  digestOf: CopyDeps["digestOf"];
  ignored: CopyDeps["ignored"];
}

export interface EvaluationResult {
  records: TaskRecord[];
  /** Task id → why it was left out (skipped.json). */
  skipped: Record<string, string>;
  unvalidated: Record<string, string>;
  interrupted: boolean;
  seconds: number;
}

export const NO_SOLUTION = "no reference solution";

export async function evaluate(run: Evaluation, deps: EvaluationDeps, signal: AbortSignal): Promise<EvaluationResult> {
  const { paths } = run;
  const started = deps.clock.ticks();
  const note = (text: string) => deps.emit({ kind: "note", text });
  const chosen = choose(run);
  await RunStore.check(paths);
  const provider = chosen.runnable.length === 0 ? null : await deps.provider();
  await using store = await RunStore.open(paths, { clock: deps.clock, signal, note });
  const saved = run.resume ? await readSaved(store.materialized()) : null;
  if (saved !== null) refuseOthers(saved, { taskset: run.taskset, agentName: run.agent.name, taskIds: chosen.ids });

  const images = await imagesOf(chosen.runnable, provider, run, deps, signal);
  const skipped = { ...chosen.skipped, ...images.refused };
  const tasks = withIndexes(chosen.runnable.filter(({ task }) => !(task.id in images.refused)), saved);
  const rows = new RowMaker({
    taskset: run.taskset,
    taskSource: run.taskSource,
    datasetDigest: run.dataset.digest,
    agentName: run.agent.name,
    createParams: run.createParams,
  });
  const facts: RecordFacts = {
    taskset: run.taskset,
    datasetDigest: run.dataset.digest,
    folder: paths.folder,
    exists: existsSync,
  };
  const records = new Records();
  const known = saved === null ? new Known() : await readRows(store, saved, tasks, run, { records, rows, facts, note });

  const others = saved === null ? [] : await inputsOfOthers(store, tasks);
  if (saved === null) await store.setAside();
  await writeInputs(store, tasks, skipped, images.references, rows, others, run);
  await store.begin();
  const solver = run.agent.needsSolution ? " with the oracle" : ` with ${run.agent.name}`;
  const doing = run.command === "gym dataset validate" ? "validating" : "running";
  note(`Run config written to ${paths.runConfig}; ${doing} ${tasks.length} task(s)${solver}`);

  const plans = () => expand(tasks, run.repeats);
  const attempts = [...owed(plans(), known, maxAttempts(deps.hostEnv, (text) => deps.emit({ kind: "warning", text })))];
  try {
    if (provider !== null && attempts.length > 0) {
      await runAttempts(
        attempts,
        run,
        { store, provider, images, rows, records, facts, tasks: tasks.length },
        deps,
        signal,
      );
    }
  } finally {
    for (const plan of plans()) records.addMissing(plan, rows.createParams(plan.task), facts);
    await writeSummary(store, records, skipped, chosen.unvalidated, run, deps);
  }
  return {
    records: records.sorted(),
    skipped,
    unvalidated: chosen.unvalidated,
    interrupted: signal.aborted,
    seconds: (deps.clock.ticks() - started) / 1000,
  };
}

interface Chosen {
  runnable: { task: Task; digest: string }[];
  skipped: Record<string, string>;
  unvalidated: Record<string, string>;
  /** Ids of all tasks of the selection. */
  ids: string[];
}

/** Which tasks become episodes, and why the others do not. */
function choose(run: Evaluation): Chosen {
  const chosen: Chosen = { runnable: [], skipped: { ...run.unloadable }, unvalidated: {}, ids: [] };
  chosen.ids = [...Object.keys(run.unloadable), ...run.tasks.map(({ task }) => task.id)];
  for (const one of run.tasks) {
    const { task } = one;
    const reason = notInThisVersion(task);
    if (reason !== null) chosen.skipped[task.id] = reason;
    else if (run.agent.needsSolution && task.solution === null) {
      chosen.unvalidated[task.id] = NO_SOLUTION;
    } else chosen.runnable.push(one);
  }
  return chosen;
}

async function imagesOf(
  tasks: readonly { task: Task }[],
  provider: SandboxProvider | null,
  run: Evaluation,
  deps: EvaluationDeps,
  signal: AbortSignal,
): Promise<PreparedImages> {
  if (provider === null) {
    const of = () => {
      throw new HarborError("image.failed", "no image was prepared");
    };
    return { of, refused: {}, references: [] };
  }
  return await prepareImages(tasks.map(({ task }) => task), provider, run.concurrency, deps.clock, deps.emit, signal);
}

function withIndexes(tasks: readonly { task: Task; digest: string }[], saved: Saved | null): PlannedTask[] {
  const index = indexes(saved, tasks.map(({ task }) => task.id));
  return tasks.map((one) => ({ ...one, taskIndex: index.get(one.task.id)! }));
}

interface Reading {
  records: Records;
  rows: RowMaker;
  facts: RecordFacts;
  note(text: string): void;
}

/** What an earlier run of the same selection left: counted, and taken into the summary. */
async function readRows(
  store: RunStore,
  saved: Saved,
  tasks: readonly PlannedTask[],
  run: Evaluation,
  { records, rows, facts, note }: Reading,
): Promise<Known> {
  const known = new Known();
  const byId = new Map(tasks.map((planned) => [planned.task.id, planned]));
  const take = (kind: "result" | "failure", row: ReadRow) => {
    const planned = byId.get(row._ng_task_id.task_id);
    if (planned === undefined || row._ng_digest !== planned.digest || row._ng_rollout_index >= run.repeats) return;
    if (kind === "result") known.addResult(row);
    else known.addFailure(row);
    const plan = { ...planned, rolloutIndex: row._ng_rollout_index, attempt: row._ng_attempt_index };
    records.add(recordOf(kind, row, plan, rows.createParams(planned.task), facts));
  };
  for await (const row of store.failures()) take("failure", row);
  for await (const row of store.results()) take("result", row);
  const changed = changedTasks(saved, new Map(tasks.map(({ task, digest }) => [task.id, digest])));
  if (changed.length > 0) note(`changed since the results were made, so they run again: ${changed.join(", ")}`);
  return known;
}

/** Everything that is written before the first episode (images §1.4). */
async function writeInputs(
  store: RunStore,
  tasks: readonly PlannedTask[],
  skipped: Record<string, string>,
  images: string[],
  rows: RowMaker,
  others: ReadMaterialized[],
  run: Evaluation,
): Promise<void> {
  const { paths } = run;
  const lines = (values: Iterable<unknown>) => Array.from(values, (value) => JSON.stringify(value) + "\n").join("");
  await store.write(paths.taskRows, lines(tasks.map((planned) => rows.taskRow(planned))));
  await store.write(paths.runConfig, run.runConfig(tasks));
  await store.write(paths.skipped, json(skipped));
  await store.write(paths.images, json(images));
  await store.write(paths.materialized, lines([...others, ...materialized(tasks, run.repeats, rows)]));
}

/** Saved inputs of tasks that this selection leaves out: they stay, so that their indexes are not given again. */
async function inputsOfOthers(store: RunStore, tasks: readonly PlannedTask[]): Promise<ReadMaterialized[]> {
  const ids = new Set(tasks.map(({ task }) => task.id));
  const others: ReadMaterialized[] = [];
  for await (const row of store.materialized()) if (!ids.has(row.task_id.task_id)) others.push(row);
  return others;
}

function* materialized(tasks: readonly PlannedTask[], repeats: number, rows: RowMaker) {
  for (const plan of expand(tasks, repeats)) yield rows.materialized(plan);
}

const json = (value: unknown): string => JSON.stringify(value, null, 2) + "\n";

interface Running {
  store: RunStore;
  provider: SandboxProvider;
  images: PreparedImages;
  rows: RowMaker;
  records: Records;
  facts: RecordFacts;
  tasks: number;
}

async function runAttempts(
  attempts: readonly EpisodePlan[],
  run: Evaluation,
  { store, provider, images, rows, records, facts, tasks }: Running,
  deps: EvaluationDeps,
  signal: AbortSignal,
): Promise<void> {
  const { agent, settings, concurrency, paths } = run;
  deps.emit({ kind: "run-started", episodes: attempts.length, tasks, concurrency, sandbox: provider.name });
  const record = async (outcome: Outcome, plan: EpisodePlan) => {
    await store.append(outcome);
    records.add(recordOf(outcome.kind, outcome.row, plan, rows.createParams(plan.task), facts));
  };
  await schedule(attempts, {
    provider,
    agent,
    clock: deps.clock,
    emit: deps.emit,
    owner: deps.owner,
    imageOf: (task) => Promise.resolve().then(() => images.of(task)),
    copies: new TaskCopies({
      scratch: deps.scratch,
      digestOf: deps.digestOf,
      ignored: deps.ignored,
      withSolution: agent.needsSolution,
    }),
    settings,
    rows,
    logsRoot: paths.verifier,
    hostEnv: deps.hostEnv,
    hide: run.hide,
    version: deps.version,
    keepFailed: run.keepFailed,
    concurrency,
    record,
  }, signal);
}

/** Never fails the run: what stands in its way is told. */
async function writeSummary(
  store: RunStore,
  records: Records,
  skipped: Record<string, string>,
  unvalidated: Record<string, string>,
  run: Evaluation,
  deps: EvaluationDeps,
): Promise<void> {
  const summary = runSummary(records.sorted(), {
    command: run.command,
    target: run.target,
    taskset: run.taskset,
    taskSource: run.taskSource,
    agent: { name: run.agent.name, implementation: run.agent.name, config: null },
    dataset: run.dataset,
    paths: run.paths,
    skipped,
    unvalidated,
    exists: existsSync,
  });
  try {
    await store.write(run.paths.summary, json(summary));
  } catch (error) {
    if (!(error instanceof HarborError)) throw error;
    deps.emit({ kind: "warning", text: `no summary: ${error.message}` });
  }
}
