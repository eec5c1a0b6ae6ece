/**
 * The one table of what can go wrong in an episode, and what follows from it (episodes §4–5).
 *
 * A result row has a verdict: a kind on it is either a scored zero (the sample counts: `test.sh` ran) or masked (our
 * side failed: the reward is not a measurement). A failure row has no verdict and never a reward. A kind says what
 * went wrong; whether it is tried again is a property of the row.
 */
import { HarborError, messageOf } from "../errors.ts";
import { beginning } from "../excerpt.ts";

export type Stage = "admission" | "seed" | "agent" | "verification" | "cleanup";

/** What a kind means on a result row; null: it stands on failure rows only. */
export type OnResult = "scored zero" | "masked" | null;

export interface KindFacts {
  onResult: OnResult;
  /** What it means, as one clause. */
  meaning: string;
  /** What a person does about it. */
  advice: string;
}

export const KINDS = {
  "harbor:missing_reward": {
    onResult: "scored zero",
    meaning: "the verifier wrote no reward",
    advice: "read test-stdout.txt: the script ended before it wrote /logs/verifier/reward.txt",
  },
  "harbor:invalid_reward": {
    onResult: "scored zero",
    meaning: "the reward file holds no finite number",
    advice: "write one number to reward.txt, or an object of numbers with the key reward to reward.json",
  },
  "harbor:verifier_timeout": {
    onResult: "scored zero",
    meaning: "the verifier ran past its limit",
    advice: "raise [verifier].timeout_sec, or see in test-stdout.txt where it hangs",
  },
  "harbor:task_deadline": {
    onResult: null,
    meaning: "the episode ran past its task's whole budget",
    advice: "run again with --resume; raise the task's timeouts if it repeats",
  },
  "harbor:trajectory_export_failed": {
    onResult: "masked",
    meaning: "the transcript could not be written",
    advice: "see the message; run again with --resume after removing the row",
  },
  "harbor:entrypoint_failed": {
    onResult: "masked",
    meaning: "the image's ENTRYPOINT ended with an error",
    advice: "read entrypoint-stdout.txt; the service the task needs was not there",
  },
  "harbor:overlay_failed": {
    onResult: "masked",
    meaning: "a Dockerfile line failed in the verifier's sandbox",
    advice: "mend the Dockerfile line that the message names",
  },
  "harbor:step_setup_failed": {
    onResult: "scored zero",
    meaning: "a step's setup.sh failed",
    advice: "mend the step's setup.sh",
  },
  "harbor:step_workdir_failed": {
    onResult: "scored zero",
    meaning: "a step's workdir/ could not be unpacked",
    advice: "see the message",
  },
  "harbor:step_healthcheck_failed": {
    onResult: "scored zero",
    meaning: "a step's health check never passed",
    advice: "see what the health check's command prints",
  },
  provider_unavailable: {
    onResult: "masked",
    meaning: "the sandbox could not do what was asked",
    advice: "run gym-harbor doctor; then run again with --resume (a task that ends its own sandbox will do so again)",
  },
  provider_quota_exhausted: {
    onResult: "masked",
    meaning: "the sandbox provider's quota is used up",
    advice: "wait or raise the quota, then run again with --resume",
  },
  provider_oom_killed: {
    onResult: "masked",
    meaning: "the sandbox ran out of memory and was killed",
    advice: "raise [environment].memory, or lower --concurrency",
  },
  verifier_error: {
    onResult: "masked",
    meaning: "test.sh could not be started",
    advice: "the image lacks what runs the script; the message names it",
  },
  persistence_failed: {
    onResult: "masked",
    meaning: "the verifier's log folder could not be made",
    advice: "make the results folder writable, or choose another with --output",
  },
  agent_run_error: {
    onResult: null,
    meaning: "the agent crashed",
    advice: "read the message; run again with --resume",
  },
  agent_timeout: { onResult: null, meaning: "the agent ran past its limit", advice: "raise [agent].timeout_sec" },
} as const satisfies Record<string, KindFacts>;

export type FailureKind = keyof typeof KINDS;

/** What is known about a kind; an unknown one (from a newer version's file) is named, never dropped. */
export function factsOf(kind: string): KindFacts {
  return (KINDS as Record<string, KindFacts>)[kind] ??
    { onResult: null, meaning: kind, advice: "see the message" };
}

/** A failure of the episode: it becomes a failure row. Thrown only inside lib/episode and lib/verifier. */
export class EpisodeFailure extends Error {
  override readonly name = "EpisodeFailure";
  constructor(
    message: string,
    readonly facts: { stage: Stage | null; kind: FailureKind | null; terminal: boolean; cause?: unknown },
  ) {
    super(message, { cause: facts.cause });
  }
}

/** Errors that must end the run instead of becoming a row: nothing can be recorded any more. */
export const endsRun = (error: unknown): boolean =>
  error instanceof HarborError && (error.code.startsWith("store.") || error.code === "aborted");

/** UTF-16 units of a reason in a row (episodes §6.2). */
export const REASON_LIMIT = 2000;

/** Turns what an episode threw at `stage` into its failure. What we never named is a bug, said so, and not retried. */
export function toFailure(error: unknown, stage: Stage): EpisodeFailure {
  if (error instanceof EpisodeFailure) return error;
  if (!(error instanceof HarborError)) {
    const name = error instanceof Error ? error.constructor.name : typeof error;
    const message = `Unhandled environment server error: ${name}: ${messageOf(error)}`;
    return new EpisodeFailure(beginning(message, REASON_LIMIT), {
      stage: null,
      kind: null,
      terminal: true,
      cause: error,
    });
  }
  const { kind, terminal } = consequence(error);
  return new EpisodeFailure(beginning(error.message, REASON_LIMIT), { stage, kind, terminal, cause: error });
}

function consequence(error: HarborError): { kind: FailureKind | null; terminal: boolean } {
  switch (error.code) {
    case "sandbox.lost":
      return {
        kind: error.details?.oomKilled === true ? "provider_oom_killed" : "provider_unavailable",
        terminal: false,
      };
    case "sandbox.failed":
    case "image.failed":
    case "transfer.failed":
    case "machine.lacks":
    case "engine.missing":
      return { kind: "provider_unavailable", terminal: false };
    default:
      return { kind: null, terminal: true };
  }
}
