/**
 * Many attempts, a few at a time, each recorded before it is told (design, invariant 1). Nothing is admitted after the
 * run's end; what runs is cancelled, cleans up and leaves no row. Results that cannot be written end the run.
 */
import { HarborError } from "../errors.ts";
import type { Outcome } from "../rollouts/schema.ts";
import { pool } from "../runtime/pool.ts";
import { EpisodeFailure } from "./failures.ts";
import { failed } from "./outcome.ts";
import { captureKey, type EpisodePlan } from "./plan.ts";
import { type EpisodeDeps, freshState, runEpisode } from "./run.ts";
import { Slots } from "./slots.ts";

export interface ScheduleDeps extends EpisodeDeps {
  concurrency: number;
  /** Puts the row on disk; when it settles, the attempt is done. */
  record(outcome: Outcome, plan: EpisodePlan): Promise<void>;
}

/** Runs `plans` to the end, or until `signal`. Throws only what keeps rows from being written. */
export async function schedule(plans: Iterable<EpisodePlan>, deps: ScheduleDeps, signal: AbortSignal): Promise<void> {
  const { settings } = deps;
  const slots = settings.max_concurrent_episodes === null ? null : new Slots(settings.max_concurrent_episodes);
  const stop = new AbortController();
  const within = AbortSignal.any([signal, stop.signal]);
  const one = async (plan: EpisodePlan): Promise<void> => {
    try {
      await attempt(plan, slots, deps, within);
    } catch (error) {
      if (error instanceof HarborError && error.code === "aborted") return;
      stop.abort(new HarborError("aborted", "results cannot be written any more"));
      throw error;
    }
  };
  await pool(plans, deps.concurrency, one, within);
}

async function attempt(plan: EpisodePlan, slots: Slots | null, deps: ScheduleDeps, signal: AbortSignal): Promise<void> {
  const { clock, settings } = deps;
  const started = clock.ticks();
  try {
    using slot = slots === null ? NO_SLOT : await slots.take(settings.queue_timeout_seconds! * 1000, clock, signal);
    const outcome = slot === null ? notAdmitted(plan, deps) : await runEpisode(plan, deps, signal);
    await deps.record(outcome, plan);
    tellEnd(plan, outcome, clock.ticks() - started, deps);
  } catch (error) {
    tellCancelled(plan, clock.ticks() - started, deps);
    throw error;
  }
}

const NO_SLOT: Disposable = { [Symbol.dispose]: () => {} };

function notAdmitted(plan: EpisodePlan, deps: EpisodeDeps): Outcome {
  const facts = { stage: "admission", kind: null, terminal: false } as const;
  return failed(plan, deps, freshState(deps), new EpisodeFailure("Episode admission timed out", facts));
}

function tellEnd(plan: EpisodePlan, outcome: Outcome, durationMs: number, deps: EpisodeDeps): void {
  const about = { kind: "finished", episode: captureKey(plan), task: plan.task.id, durationMs } as const;
  if (outcome.kind === "failure") {
    const { failure_kind = null, _ng_failure_message } = outcome.row;
    const more = { reward: null, failureKind: failure_kind, reason: _ng_failure_message, logs: null };
    deps.emit({ ...about, outcome: "failed", ...more });
    return;
  }
  const { row } = outcome;
  deps.emit({
    ...about,
    outcome: row.mask_sample ? "masked" : "scored",
    reward: row.mask_sample ? null : row.reward,
    failureKind: row.failure_kind,
    reason: row.failure_reason,
    logs: row.verifier_logs_dir,
  });
}

function tellCancelled(plan: EpisodePlan, durationMs: number, deps: EpisodeDeps): void {
  deps.emit({
    kind: "finished",
    episode: captureKey(plan),
    task: plan.task.id,
    outcome: "cancelled",
    reward: null,
    failureKind: null,
    reason: null,
    durationMs,
    logs: null,
  });
}
