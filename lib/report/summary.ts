/**
 * `<stem>_run_summary.json` (episodes §7): one entry per task and repeat, built while rows come in, so that no row is
 * kept. Pure but for asking which files exist.
 */
import { isAbsolute, join, relative } from "node:path";
import type { EpisodePlan } from "../episode/plan.ts";
import { REASON_LIMIT } from "../episode/failures.ts";
import { beginning } from "../excerpt.ts";
import type { CreateParams, FailureFacts, ResultFacts } from "../rollouts/schema.ts";
import type { RunPaths } from "../rollouts/paths.ts";

/** Entry of one task and repeat; keys and order as published. */
export interface Entry {
  taskset: string;
  task_id: string;
  task_index: number;
  rollout_index: number;
  status: "result" | "failed" | "missing";
  reward: number | null;
  mask_sample: boolean | null;
  failure_kind: string | null;
  verifier?: {
    mode: string | null;
    seconds: number | null;
    network: string | null;
    return_code: number | null;
    rewards: Record<string, number> | null;
  };
  response_metadata?: Record<string, string>;
  failure?: { class: string; stage: string | null; message: string; attempt: number };
  image?: string;
  sandbox?: { provider: string; network: string; limits: string; notes: string[] };
  paths?: EntryPaths;
  missing_paths: string[];
  input: { _ng_digest: string; _ng_dataset_digest: string; metadata: Record<string, string> };
}

interface EntryPaths {
  verifier_logs: string | null;
  test_stdout: string | null;
  trajectory: string | null;
  entrypoint_stdout: string | null;
  artifacts: string | null;
}

/** An entry and what only the screen shows. */
export interface TaskRecord {
  entry: Entry;
  seconds: number;
  reason: string | null;
}

/** What an outcome of this run or of an earlier one says. */
export type Told = { kind: "result"; row: ResultFacts } | { kind: "failure"; row: FailureFacts };

export interface RecordFacts {
  taskset: string;
  datasetDigest: string;
  folder: string;
  exists(path: string): boolean;
}

/** What a row says about its rollout. */
export function recordOf(told: Told, plan: EpisodePlan, params: CreateParams, facts: RecordFacts): TaskRecord {
  const { missing_paths: _, input, ...head } = missingEntry(plan, params, facts);
  const { image, sandbox, verifier_logs_dir, failure_kind = null, elapsed_seconds } = told.row;
  const { paths, missing_paths } = pathsOf(verifier_logs_dir ?? null, facts);
  const started = sandbox === undefined ? {} : { image, sandbox };
  const tail = { ...started, paths, missing_paths, input };
  const seconds = elapsed_seconds ?? 0;
  if (told.kind === "failure") {
    const { row } = told;
    const message = beginning(row._ng_failure_message, REASON_LIMIT);
    const failure = {
      class: row._ng_failure_class,
      stage: row._ng_failure_stage ?? null,
      message,
      attempt: row._ng_attempt_index,
    };
    return { entry: { ...head, status: "failed", failure_kind, failure, ...tail }, seconds, reason: message };
  }
  const { row } = told;
  const verifier = {
    mode: row.verifier_mode ?? null,
    seconds: row.verifier_seconds ?? null,
    network: row.verifier_network ?? null,
    return_code: row.verifier_return_code ?? null,
    rewards: row.rewards ?? null,
  };
  const { reward, mask_sample } = row;
  const response_metadata = row.response_metadata ?? {};
  return {
    entry: { ...head, status: "result", reward, mask_sample, failure_kind, verifier, response_metadata, ...tail },
    seconds,
    reason: row.failure_reason ?? null,
  };
}

function missingEntry(plan: EpisodePlan, params: CreateParams, facts: RecordFacts): Entry {
  return {
    taskset: facts.taskset,
    task_id: plan.task.id,
    task_index: plan.taskIndex,
    rollout_index: plan.rolloutIndex,
    status: "missing",
    reward: null,
    mask_sample: null,
    failure_kind: null,
    missing_paths: [],
    input: { _ng_digest: plan.digest, _ng_dataset_digest: facts.datasetDigest, metadata: params.metadata ?? {} },
  };
}

function pathsOf(logs: string | null, facts: RecordFacts): { paths: EntryPaths; missing_paths: string[] } {
  const none = { verifier_logs: null, test_stdout: null, trajectory: null, entrypoint_stdout: null, artifacts: null };
  if (logs === null) return { paths: none, missing_paths: [] };
  const shown = relativeTo(facts.folder, logs);
  if (!facts.exists(logs)) return { paths: { ...none, verifier_logs: shown }, missing_paths: ["verifier_logs"] };
  const inside = (name: string) => (facts.exists(join(logs, name)) ? `${shown}/${name}` : null);
  const paths = {
    verifier_logs: shown,
    test_stdout: inside("test-stdout.txt"),
    trajectory: inside("trajectory.json"),
    entrypoint_stdout: inside("entrypoint-stdout.txt"),
    artifacts: inside("artifacts"),
  };
  return { paths, missing_paths: [] };
}

/** Relative, `..` allowed; absolute only where there is no relative form. */
function relativeTo(folder: string, path: string): string {
  const shown = relative(folder, path);
  return isAbsolute(shown) ? path : shown || ".";
}

/** All records of a run. A result wins over a failure; of failures the last one counts. */
export class Records {
  #byRollout = new Map<string, TaskRecord>();

  add(record: TaskRecord): void {
    const { entry } = record;
    const key = `${entry.task_index}-${entry.rollout_index}`;
    if (this.#byRollout.get(key)?.entry.status === "result" && entry.status !== "result") return;
    this.#byRollout.set(key, record);
  }

  /** Names a planned rollout that has no row. */
  addMissing(plan: EpisodePlan, params: CreateParams, facts: RecordFacts): void {
    if (this.#byRollout.has(`${plan.taskIndex}-${plan.rolloutIndex}`)) return;
    this.add({ entry: missingEntry(plan, params, facts), seconds: 0, reason: null });
  }

  /** By task id, then repeat. */
  sorted(): TaskRecord[] {
    return [...this.#byRollout.values()].sort(({ entry: a }, { entry: b }) =>
      a.task_id < b.task_id ? -1 : a.task_id > b.task_id ? 1 : a.rollout_index - b.rollout_index
    );
  }
}

export interface Counts {
  selected: number;
  results: number;
  masked: number;
  failed: number;
  missing: number;
}

export function counts(records: readonly TaskRecord[]): Counts {
  const having = (status: Entry["status"]) => records.filter(({ entry }) => entry.status === status).length;
  return {
    selected: records.length,
    results: having("result"),
    masked: records.filter(({ entry }) => entry.mask_sample === true).length,
    failed: having("failed"),
    missing: having("missing"),
  };
}

export interface SummaryFacts {
  command: "gym eval run" | "gym dataset validate";
  target: string;
  taskset: string;
  taskSource: string;
  agent: { name: string; implementation: string; config: string | null };
  dataset: {
    folder: string;
    source: string;
    digest: string;
    dataset_toml_digest: string | null;
    dataset_files_digest: string | null;
  };
  paths: RunPaths;
  skipped: Record<string, string>;
  unvalidated: Record<string, string>;
  /** Reference → the name under which this machine held the image (images §8.4). */
  imageAliases: Record<string, string>;
  exists(path: string): boolean;
}

/** The document. */
export function runSummary(records: readonly TaskRecord[], facts: SummaryFacts): Record<string, unknown> {
  const { paths } = facts;
  const there = (path: string) => (facts.exists(path) ? relativeTo(paths.folder, path) : null);
  const rows = records.filter(({ entry }) => entry.status !== "missing");
  return {
    schema_version: 1,
    command: facts.command,
    target: facts.target,
    taskset: facts.taskset,
    task_source: facts.taskSource,
    rows_task_source: rows.length === 0 ? null : facts.taskSource,
    agent: facts.agent,
    dataset: facts.dataset,
    summary_dir: paths.folder,
    files: {
      rollouts: there(paths.rollouts),
      failures: there(paths.failures),
      materialized_inputs: there(paths.materialized),
      aggregate_metrics: there(paths.aggregate),
      rows: there(paths.taskRows),
      rows_prepare: null,
      rows_metrics: null,
      collated: null,
      collated_metrics: null,
      run_config: there(paths.runConfig),
      skipped: there(paths.skipped),
      images: there(paths.images),
      quality_summary: null,
      rollout_verdicts: null,
      verifier: there(paths.verifier),
    },
    stale_files: [],
    counts: counts(records),
    tasks: records.map(({ entry }) => entry),
    skipped: facts.skipped,
    unvalidated: facts.unvalidated,
    // Not among the keys that NeMo Gym publishes, so only where there is something to say.
    ...(Object.keys(facts.imageAliases).length > 0 && { image_aliases: facts.imageAliases }),
  };
}
