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
export interface SandboxFacts {
  provider: string;
  network: string;
  limits: string;
  notes: string[];
}

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

const taskId = z.object({ taskset: z.string(), task_id: z.string() });

/** As much of any row of ours as a resumed run and a summary need. */
export const ReadRow = z.looseObject({
  _ng_task_id: taskId,
  _ng_task_index: z.int().nonnegative(),
  _ng_rollout_index: z.int().nonnegative(),
  _ng_attempt_index: z.int().nonnegative().default(0),
  _ng_digest: z.string(),
  _ng_dataset_digest: z.string(),
  task_source: z.string(),
  agent_ref: z.looseObject({ name: z.string() }),
});
export type ReadRow = z.infer<typeof ReadRow>;

export const ReadMaterialized = z.looseObject({
  task_id: taskId,
  _ng_task_index: z.int().nonnegative(),
  _ng_rollout_index: z.int().nonnegative(),
  _ng_digest: z.string(),
  _ng_dataset_digest: z.string(),
  agent_ref: z.looseObject({ name: z.string() }),
});
export type ReadMaterialized = z.infer<typeof ReadMaterialized>;
