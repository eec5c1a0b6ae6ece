/**
 * What is left of a plan, given the rows on disk. Pure. A rollout is done by a result of the same task digest, whatever
 * its reward; it is given up after a terminal failure or as many failures as there are attempts (episodes §4.4).
 */
import type { EpisodePlan } from "../episode/plan.ts";
import type { ReadFailure, ReadResult } from "./schema.ts";

/** Which rollout a row is of. */
type Rollout = "_ng_task_id" | "_ng_rollout_index" | "_ng_digest";
type Marker = "_ng_failure_terminal" | "_ng_omitted_rollout" | "_ng_dispatch_drained" | "_ng_no_persist";

/** What the rows on disk say, in a form that is small and constant per rollout. */
export class Known {
  #done = new Set<string>();
  #failures = new Map<string, { count: number; terminal: boolean }>();

  addResult(row: Pick<ReadResult, Rollout>): void {
    this.#done.add(keyOf(row._ng_task_id.task_id, row._ng_rollout_index, row._ng_digest));
  }

  /** Rows that say themselves that they were no attempt do not count. */
  addFailure(row: Pick<ReadFailure, Rollout | Marker>): void {
    if (row._ng_omitted_rollout === true || row._ng_dispatch_drained === true || row._ng_no_persist === true) return;
    const key = keyOf(row._ng_task_id.task_id, row._ng_rollout_index, row._ng_digest);
    const before = this.#failures.get(key);
    this.#failures.set(key, {
      count: (before?.count ?? 0) + 1,
      terminal: before?.terminal === true || row._ng_failure_terminal === true,
    });
  }

  /** The attempt to run next, or null when nothing is owed. */
  nextAttempt(plan: EpisodePlan, maxAttempts: number): number | null {
    const key = keyOf(plan.task.id, plan.rolloutIndex, plan.digest);
    if (this.#done.has(key)) return null;
    const failed = this.#failures.get(key);
    if (failed === undefined) return 0;
    return failed.terminal || failed.count >= maxAttempts ? null : failed.count;
  }
}

/** The episodes of `plans` that are still to be run, each with its attempt. Lazy. */
export function* owed(plans: Iterable<EpisodePlan>, known: Known, maxAttempts: number): Generator<EpisodePlan> {
  for (const plan of plans) {
    const attempt = known.nextAttempt(plan, maxAttempts);
    if (attempt !== null) yield { ...plan, attempt };
  }
}

const keyOf = (task: string, rollout: number, digest: string): string => `${task}\0${rollout}\0${digest}`;

/** Attempts a rollout gets over all resumed runs; `warn` hears of a value that is no positive integer. */
export function maxAttempts(
  env: Readonly<Record<string, string | undefined>>,
  warn: (text: string) => void,
): number {
  const value = env.NEMO_GYM_MAX_ROLLOUT_ATTEMPTS;
  if (value === undefined || value === "") return 3;
  if (/^[1-9]\d{0,5}$/.test(value.trim())) return Number(value);
  warn(`NEMO_GYM_MAX_ROLLOUT_ATTEMPTS is '${value}', must be a positive integer; 3 is used`);
  return 3;
}
