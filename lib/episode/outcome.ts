/** The rows that an episode ends in (episodes §6.2–6.3), from what is known at its end. */
import type { AgentOutcome } from "../agent/agent.ts";
import { HarborError } from "../errors.ts";
import type { FailureRow, Outcome, ResultRow, SandboxFacts } from "../rollouts/schema.ts";
import type { Verification } from "../verifier/run.ts";
import type { EpisodeFailure } from "./failures.ts";
import { type EpisodePlan, rolloutId } from "./plan.ts";
import type { EpisodeDeps, State } from "./run.ts";

function sandboxFacts(deps: EpisodeDeps, state: State, more: string[] = []): SandboxFacts | null {
  const { box } = state;
  if (box === null) return null;
  const notes = [...new Set([...box.notes, ...state.notes, ...more])];
  return { provider: deps.provider.name, network: box.network, limits: box.limits, notes };
}

const elapsed = (deps: EpisodeDeps, state: State): number =>
  Math.round((deps.clock.ticks() - state.startedTicks) / 10) / 100;

/** A row with a verdict. */
export function resultRow(
  plan: EpisodePlan,
  deps: EpisodeDeps,
  state: State,
  agent: AgentOutcome,
  verification: Verification,
): ResultRow {
  const { notes, ...verdict } = verification;
  return {
    responses_create_params: deps.rows.createParams(plan.task),
    response: agent.response,
    ...verdict,
    verifier_rewards: verdict.rewards,
    verifier_network: verdict.verifier_mode === null ? null : state.box!.network,
    agent_timed_out: agent.timedOut,
    agent_timeout_seconds: plan.task.agent.timeout_sec,
    response_metadata: agent.response.metadata,
    elapsed_seconds: elapsed(deps, state),
    started_at: state.startedAt.toISOString(),
    image: state.image!.reference,
    sandbox: sandboxFacts(deps, state, notes)!,
    ...deps.rows.identity(plan),
  };
}

/** The kind of error behind a failure, for tools: our code, else the name of its class. */
function exceptionType(cause: unknown): string | null {
  if (cause instanceof HarborError) return cause.code;
  return cause instanceof Error ? cause.name : null;
}

/** An outcome without a verdict; never a reward. */
export function failed(plan: EpisodePlan, deps: EpisodeDeps, state: State, failure: EpisodeFailure): Outcome {
  const { stage, kind, terminal } = failure.facts;
  const sandbox = sandboxFacts(deps, state);
  const row: FailureRow = {
    ...deps.rows.identity(plan),
    _ng_failure_class: "environment_server_failed",
    _ng_failure_terminal: terminal,
    ...(stage === null ? {} : { _ng_failure_stage: stage }),
    _ng_failure_message: failure.message,
    ...(kind === null ? {} : { failure_kind: kind }),
    cleanup_error: null,
    elapsed_seconds: elapsed(deps, state),
    started_at: state.startedAt.toISOString(),
    _ng_failure_report: {
      schema_version: 1,
      episode_id: { rollout_id: rolloutId(plan), attempt: plan.attempt },
      run_id: deps.owner.run,
      source: "environment",
      delivery: "delivered",
      http_status: null,
      exception_type: exceptionType(failure.cause),
      failure: {
        failure_reason: failure.message,
        terminal,
        failure_kind: kind ?? undefined,
        stage: stage ?? undefined,
      },
    },
    ...(state.image === null ? {} : { image: state.image.reference }),
    ...(sandbox === null ? {} : { sandbox }),
  };
  return { kind: "failure", row };
}
