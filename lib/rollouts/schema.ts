/**
 * The rows of a run, as they stand in its files (episodes §6). Fields keep the format's spelling. Rows are read with
 * loose schemas: keys that a newer version writes survive a round trip.
 */
import { z } from "zod";
import type { ModelResponse } from "../agent/agent.ts";
import type { FailureKind, Stage } from "../episode/failures.ts";

export interface TaskId {
  taskset: string;
  task_id: string;
}

/** Environment server instance and implementation that rows name. */
export const ENVIRONMENT_SERVER = "harbor_environment_server";
export const RESULT_TYPE = "harbor";

export interface CreateParams {
  input: { role: "user"; content: string }[];
  metadata: Record<string, string>;
  [other: string]: unknown;
}

/** `tasks_<agent>.jsonl`: a selected task that loads. */
export interface TaskRow {
  task_id: TaskId;
  task_input: { responses_create_params: CreateParams; task_data: Record<string, unknown> };
  task_source: string;
  agent_ref: AgentRef;
  _ng_environment_server: string;
  _ng_digest: string;
  _ng_dataset_digest: string;
}

export interface AgentRef {
  type: "responses_api_agents";
  name: string;
}

/** `<stem>_materialized_inputs.jsonl`: one row per task and repeat. */
export interface MaterializedRow extends TaskRow {
  _ng_task_index: number;
  _ng_rollout_index: number;
}

interface Identity {
  _ng_task_id: TaskId;
  _ng_task_index: number;
  _ng_rollout_index: number;
  _ng_attempt_index: number;
  _ng_digest: string;
  _ng_dataset_digest: string;
  task_source: string;
  agent_ref: AgentRef;
  _ng_environment_server: string;
  _ng_result_type: string;
}

/** What was started, and everything about it that was not as the task asked (decisions 5). */
export const SandboxFacts = z.looseObject({
  provider: z.string(),
  network: z.string(),
  limits: z.string(),
  notes: z.array(z.string()),
});
export type SandboxFacts = z.infer<typeof SandboxFacts>;

/** `<stem>.jsonl`: a verdict. */
export interface ResultRow extends Identity {
  responses_create_params: CreateParams;
  response: ModelResponse;
  reward: number;
  rewards: Record<string, number> | null;
  /** Early name of `rewards`. */
  verifier_rewards: Record<string, number> | null;
  mask_sample: boolean;
  failure_kind: FailureKind | null;
  failure_reason: string | null;
  verifier_mode: "shared" | null;
  verifier_seconds: number | null;
  verifier_network: string | null;
  verifier_return_code: number | null;
  verifier_logs_dir: string | null;
  agent_timed_out: boolean;
  agent_timeout_seconds: number;
  response_metadata: Record<string, string>;
  elapsed_seconds: number;
  /** Wall time of the start, UTC. */
  started_at: string;
  image: string;
  sandbox: SandboxFacts;
}

/** `<stem>_failures.jsonl`: an attempt without a verdict. */
export interface FailureRow extends Identity {
  _ng_failure_class: "environment_server_failed" | "agent_run_error";
  _ng_failure_terminal: boolean;
  _ng_failure_stage?: Stage;
  _ng_failure_message: string;
  failure_kind?: FailureKind;
  cleanup_error: string | null;
  elapsed_seconds: number;
  started_at: string;
  _ng_failure_report: Record<string, unknown>;
  image?: string;
  sandbox?: SandboxFacts;
}

export type Outcome = { kind: "result"; row: ResultRow } | { kind: "failure"; row: FailureRow };

const taskId = z.looseObject({ taskset: z.string(), task_id: z.string() });

/** As much of any row of ours as a resumed run needs. */
const readRow = {
  _ng_task_id: taskId,
  _ng_task_index: z.int().nonnegative(),
  _ng_rollout_index: z.int().nonnegative(),
  _ng_attempt_index: z.int().nonnegative().default(0),
  _ng_digest: z.string(),
  _ng_dataset_digest: z.string(),
  task_source: z.string(),
  agent_ref: z.looseObject({ name: z.string() }),
};

/** What every outcome says of itself; absent where an older version did not say it. */
const anyOutcome = {
  failure_kind: z.string().nullish(),
  verifier_logs_dir: z.string().nullish(),
  elapsed_seconds: z.number().nonnegative().nullish(),
  image: z.string().optional(),
  sandbox: SandboxFacts.optional(),
};

/** As much of a verdict as a summary tells. */
const ResultFacts = z.object({
  ...anyOutcome,
  reward: z.number(),
  rewards: z.record(z.string(), z.number()).nullish(),
  mask_sample: z.boolean(),
  failure_reason: z.string().nullish(),
  verifier_mode: z.string().nullish(),
  verifier_seconds: z.number().nullish(),
  verifier_network: z.string().nullish(),
  verifier_return_code: z.int().nullish(),
  response_metadata: z.record(z.string(), z.string()).nullish(),
});
export type ResultFacts = z.infer<typeof ResultFacts>;

/** As much of a failure as a summary tells. */
const FailureFacts = z.object({
  ...anyOutcome,
  _ng_attempt_index: z.int().nonnegative().default(0),
  _ng_failure_class: z.string(),
  _ng_failure_stage: z.string().nullish(),
  _ng_failure_message: z.string().default(""),
});
export type FailureFacts = z.infer<typeof FailureFacts>;

/** A row of `<stem>.jsonl`. */
export const ReadResult = z.looseObject({ ...readRow, ...ResultFacts.shape });
export type ReadResult = z.infer<typeof ReadResult>;

/** A row of `<stem>_failures.jsonl`; a marker says that it was no attempt (episodes §6.3). */
export const ReadFailure = z.looseObject({
  ...readRow,
  ...FailureFacts.shape,
  _ng_failure_terminal: z.boolean().optional(),
  _ng_omitted_rollout: z.boolean().optional(),
  _ng_dispatch_drained: z.boolean().optional(),
  _ng_no_persist: z.boolean().optional(),
});
export type ReadFailure = z.infer<typeof ReadFailure>;

export const ReadMaterialized = z.looseObject({
  task_id: taskId,
  _ng_task_index: z.int().nonnegative(),
  _ng_rollout_index: z.int().nonnegative(),
  _ng_digest: z.string(),
  _ng_dataset_digest: z.string(),
  agent_ref: z.looseObject({ name: z.string() }),
});
export type ReadMaterialized = z.infer<typeof ReadMaterialized>;
