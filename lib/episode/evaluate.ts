/**
 * A whole run: from planned tasks to rows, summary and files. It is the order of the arrows (design, "The flow"); every
 * arrow is a function of its own. Nothing of an earlier run is touched before the sandbox and the images are known to
 * be there; the summary is written whatever happens after that.
 */
import { existsSync } from "node:fs";
import { boundPaths } from "../compose/mod.ts";
import { HarborError } from "../errors.ts";
import type { Agent } from "../agent/agent.ts";
import type { Emit } from "../events.ts";
import { Known, maxAttempts, owed } from "../rollouts/owed.ts";
import type { RunPaths } from "../rollouts/paths.ts";
import { changedTasks, indexes, readSaved, refuseOthers, type Saved } from "../rollouts/resume.ts";
import { RowMaker } from "../rollouts/rows.ts";
import { RunStore } from "../rollouts/store.ts";
import type { ReadFailure, ReadMaterialized, ReadResult } from "../rollouts/schema.ts";
import {
  type RecordFacts,
  recordOf,
  Records,
  runSummary,
  type SummaryFacts,
  type TaskRecord,
  type Told,
} from "../report/summary.ts";
import type { Prepared } from "../images/prepare.ts";
import type { Clock } from "../runtime/clock.ts";
import { Gate } from "../runtime/pool.ts";
import type { Owner } from "../sandbox/owner.ts";
import type { SandboxProvider } from "../sandbox/provider.ts";
import type { Task } from "../task/task.ts";
import { type CopyDeps, TaskCopies } from "./copies.ts";
import { NO_IMAGES, offlineRefusal, type PreparedImages, takeUpImages } from "./images.ts";
import { type EpisodePlan, expand, notInThisVersion, type PlannedTask } from "./plan.ts";
import { schedule, type ScheduleDeps } from "./schedule.ts";
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
  /** Prepares the images of the tasks that are to run (lib/images/prepare.ts). */
  prepare(tasks: readonly Task[], provider: SandboxProvider, signal: AbortSignal): Promise<Prepared>;
  /** Nothing may be asked of any network: an image that is not here keeps the run from beginning. */
  offline: boolean;
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

const NO_SOLUTION = "no reference solution";

/**
 * Runs what is owed and tells what came of it. Throws what keeps a run from beginning ("store.…", "engine.missing",
 * "image.missing" under --offline, "store.mismatch" on a resume) and what keeps rows from being written; after an abort it returns, `interrupted` set.
 */
export async function evaluate(run: Evaluation, deps: EvaluationDeps, signal: AbortSignal): Promise<EvaluationResult> {
  const started = deps.clock.ticks();
  const chosen = choose(run);
  await RunStore.check(run.paths);
  const provider = chosen.runnable.length === 0 ? null : await deps.provider();
  await using desk = await Desk.open(run, deps, signal);
  const saved = run.resume ? await readSaved(desk.store.materialized()) : null;
  if (saved !== null) refuseOthers(saved, { taskset: run.taskset, agentName: run.agent.name, taskIds: chosen.ids });

  const images = provider === null ? NO_IMAGES : await desk.prepare(chosen.runnable, provider);
  const skipped = { ...chosen.skipped, ...images.refused };
  const tasks = withIndexes(chosen.runnable.filter(({ task }) => !Object.hasOwn(images.refused, task.id)), saved);
  const known = saved === null ? new Known() : await readRows(desk, tasks, saved);
  const others = saved === null ? [] : await inputsOfOthers(desk.store, tasks);
  if (saved === null) await desk.store.setAside();
  const told = { ...skipped, ...images.unbuilt };
  await writeInputs(desk, { tasks, skipped: told, others, images: images.references });
  await desk.store.begin();
  desk.note(`Run config written to ${run.paths.runConfig}; ${doing(run)} ${tasks.length} task(s) with ${agentOf(run)}`);

  const warn = (text: string) => deps.emit({ kind: "warning", text });
  const attempts = [...owed(expand(tasks, run.repeats), known, maxAttempts(deps.hostEnv, warn))];
  try {
    if (provider !== null && attempts.length > 0) {
      deps.emit({
        kind: "run-started",
        episodes: attempts.length,
        tasks: tasks.length,
        concurrency: run.concurrency,
        sandbox: provider.name,
      });
      await schedule(attempts, scheduleDeps(desk, provider, images), signal);
    }
  } finally {
    for (const plan of expand(tasks, run.repeats)) {
      desk.records.addMissing(plan, desk.rows.createParams(plan.task), desk.facts);
    }
    await writeSummary(desk, { skipped, unvalidated: chosen.unvalidated, imageAliases: images.aliases });
  }
  return {
    records: desk.records.sorted(),
    skipped,
    unvalidated: chosen.unvalidated,
    interrupted: signal.aborted,
    seconds: (deps.clock.ticks() - started) / 1000,
  };
}

const doing = (run: Evaluation): string => (run.command === "gym dataset validate" ? "validating" : "running");
const agentOf = ({ agent }: Evaluation): string => (agent.needsSolution ? "the oracle" : agent.name);

/** What the stages of one run share; it holds the folder's lock. */
class Desk implements AsyncDisposable {
  readonly records = new Records();
  readonly rows: RowMaker;
  readonly facts: RecordFacts;

  private constructor(
    readonly run: Evaluation,
    readonly deps: EvaluationDeps,
    readonly signal: AbortSignal,
    readonly store: RunStore,
  ) {
    this.rows = new RowMaker({
      taskset: run.taskset,
      taskSource: run.taskSource,
      datasetDigest: run.dataset.digest,
      agentName: run.agent.name,
      createParams: run.createParams,
    });
    this.facts = {
      taskset: run.taskset,
      datasetDigest: run.dataset.digest,
      folder: run.paths.folder,
      exists: existsSync,
    };
  }

  static async open(run: Evaluation, deps: EvaluationDeps, signal: AbortSignal): Promise<Desk> {
    const note = (text: string) => deps.emit({ kind: "note", text });
    return new Desk(run, deps, signal, await RunStore.open(run.paths, { clock: deps.clock, signal, note }));
  }

  note(text: string): void {
    this.deps.emit({ kind: "note", text });
  }

  async prepare(chosen: readonly { task: Task }[], provider: SandboxProvider): Promise<PreparedImages> {
    const tasks = chosen.map(({ task }) => task);
    const prepared = await this.deps.prepare(tasks, provider, this.signal);
    const images = await takeUpImages(tasks, prepared, provider, this.run.concurrency, this.deps, this.signal);
    if (this.deps.offline && Object.keys(images.missing).length > 0) throw offlineRefusal(images.missing);
    return images;
  }

  /** Takes an outcome of this run or of an earlier one into the summary. */
  keep(told: Told, plan: EpisodePlan): void {
    this.records.add(recordOf(told, plan, this.rows.createParams(plan.task), this.facts));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.store[Symbol.asyncDispose]();
  }
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

function withIndexes(tasks: readonly { task: Task; digest: string }[], saved: Saved | null): PlannedTask[] {
  const index = indexes(saved, tasks.map(({ task }) => task.id));
  return tasks.map((one) => ({ ...one, taskIndex: index.get(one.task.id)! }));
}

/** What an earlier run of the same selection left: counted, and taken into the summary. */
async function readRows(desk: Desk, tasks: readonly PlannedTask[], saved: Saved): Promise<Known> {
  const known = new Known();
  const byId = new Map(tasks.map((planned) => [planned.task.id, planned]));
  const take = (told: { kind: "result"; row: ReadResult } | { kind: "failure"; row: ReadFailure }) => {
    const { row } = told;
    const planned = byId.get(row._ng_task_id.task_id);
    const { repeats } = desk.run;
    if (planned === undefined || row._ng_digest !== planned.digest || row._ng_rollout_index >= repeats) return;
    if (told.kind === "result") known.addResult(told.row);
    else known.addFailure(told.row);
    desk.keep(told, { ...planned, rolloutIndex: row._ng_rollout_index, attempt: row._ng_attempt_index });
  };
  for await (const row of desk.store.failures()) take({ kind: "failure", row });
  for await (const row of desk.store.results()) take({ kind: "result", row });
  const changed = changedTasks(saved, new Map(tasks.map(({ task, digest }) => [task.id, digest])));
  if (changed.length > 0) desk.note(`changed since the results were made, so they run again: ${changed.join(", ")}`);
  return known;
}

interface Inputs {
  tasks: readonly PlannedTask[];
  skipped: Record<string, string>;
  /** Saved inputs of tasks that this selection leaves out. */
  others: ReadMaterialized[];
  images: string[];
}

/** Everything that is written before the first episode (images §1.4). */
async function writeInputs({ run, store, rows }: Desk, { tasks, skipped, others, images }: Inputs): Promise<void> {
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

/** Members of groups that are started at once: engines answer more of them no sooner, and some deadlock (F5, F6). */
const GROUP_STARTS = 4;

function scheduleDeps(desk: Desk, provider: SandboxProvider, images: PreparedImages): ScheduleDeps {
  const { run, deps, rows, store } = desk;
  const { agent, settings, concurrency, keepFailed, hide } = run;
  const { clock, emit, owner, scratch, digestOf, ignored, hostEnv, version } = deps;
  return {
    provider,
    agent,
    clock,
    emit,
    owner,
    imageOf: (task) => Promise.resolve().then(() => images.of(task)),
    composeOf: images.composeOf,
    startGate: new Gate(GROUP_STARTS),
    scratch,
    copies: new TaskCopies({
      scratch,
      digestOf,
      ignored,
      mounted: ({ task }) => boundPaths(images.composeOf(task)?.plan.services ?? []),
      withSolution: agent.needsSolution,
    }),
    settings,
    rows,
    logsRoot: run.paths.verifier,
    hostEnv,
    hide,
    version,
    keepFailed,
    concurrency,
    async record(outcome, plan) {
      await store.append(outcome);
      desk.keep(outcome, plan);
    },
  };
}

/** Never fails the run: what stands in its way is told. */
async function writeSummary(
  { run, deps, store, records }: Desk,
  told: Pick<SummaryFacts, "skipped" | "unvalidated" | "imageAliases">,
): Promise<void> {
  const summary = runSummary(records.sorted(), {
    command: run.command,
    target: run.target,
    taskset: run.taskset,
    taskSource: run.taskSource,
    agent: { name: run.agent.name, implementation: run.agent.name, config: null },
    dataset: run.dataset,
    paths: run.paths,
    ...told,
    exists: existsSync,
  });
  try {
    await store.write(run.paths.summary, json(summary));
  } catch (error) {
    if (!(error instanceof HarborError)) throw error;
    deps.emit({ kind: "warning", text: `no summary: ${error.message}` });
  }
}
