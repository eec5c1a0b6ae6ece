/** Makes the rows that need only the plan: prepared, materialized, and what every outcome repeats (episodes §6). */
import type { EpisodePlan, PlannedTask } from "../episode/plan.ts";
import type { Task } from "../task/task.ts";
import {
  type AgentRef,
  type CreateParams,
  ENVIRONMENT_SERVER,
  type MaterializedRow,
  RESULT_TYPE,
  type TaskRow,
} from "./schema.ts";

export interface RowFacts {
  taskset: string;
  /** Label of the dataset. */
  taskSource: string;
  datasetDigest: string;
  agentName: string;
  /** `responses_create_params.…` overrides, merged shallowly. */
  createParams: Record<string, unknown>;
}

export class RowMaker {
  readonly agentRef: AgentRef;

  constructor(readonly facts: RowFacts) {
    this.agentRef = { type: "responses_api_agents", name: facts.agentName };
  }

  createParams(task: Task): CreateParams {
    return {
      input: [{ role: "user", content: task.instruction }],
      metadata: { agent_timeout_sec: pythonFloat(task.agent.timeout_sec) },
      ...this.facts.createParams,
    };
  }

  taskRow({ task, digest }: PlannedTask): TaskRow {
    const { facts } = this;
    return {
      task_id: { taskset: facts.taskset, task_id: task.id },
      task_input: {
        responses_create_params: this.createParams(task),
        task_data: { ...task.taskData, _ng_digest: digest, _ng_dataset_digest: facts.datasetDigest },
      },
      task_source: facts.taskSource,
      agent_ref: this.agentRef,
      _ng_environment_server: ENVIRONMENT_SERVER,
      _ng_digest: digest,
      _ng_dataset_digest: facts.datasetDigest,
    };
  }

  materialized(plan: EpisodePlan): MaterializedRow {
    return { _ng_task_index: plan.taskIndex, _ng_rollout_index: plan.rolloutIndex, ...this.taskRow(plan) };
  }

  /** The keys that say whose outcome a row is. */
  identity(plan: EpisodePlan) {
    const { facts } = this;
    return {
      _ng_task_id: { taskset: facts.taskset, task_id: plan.task.id },
      _ng_task_index: plan.taskIndex,
      _ng_rollout_index: plan.rolloutIndex,
      _ng_attempt_index: plan.attempt,
      _ng_digest: plan.digest,
      _ng_dataset_digest: facts.datasetDigest,
      task_source: facts.taskSource,
      agent_ref: this.agentRef,
      _ng_environment_server: ENVIRONMENT_SERVER,
      _ng_result_type: RESULT_TYPE,
    };
  }
}

/** A number as Python writes a float: `900` is `900.0`. */
const pythonFloat = (value: number): string => (Number.isInteger(value) ? value.toFixed(1) : String(value));

/** The label of a taskset in rows: `my-dataset` is `my_dataset`. */
export const sourceLabel = (taskset: string): string => taskset.replaceAll(/[^\p{L}\p{N}_]+/gu, "_");
