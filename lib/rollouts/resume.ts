/**
 * Whether results on disk are of this run, so that --resume may go on with them (evaluation §3.9). Another taskset or
 * agent is refused by name. Within the same one a task keeps its index, a changed task is owed again, a new one gets
 * the next index.
 */
import { HarborError } from "../errors.ts";
import type { ReadMaterialized } from "./schema.ts";

/** What the saved inputs say, small per task. */
export interface Saved {
  taskset: string;
  agentName: string;
  /** Task id → its index and digest. */
  tasks: Map<string, { index: number; digest: string }>;
  rollouts: number;
}

/** Null without saved inputs: there is nothing to go on with. */
export async function readSaved(rows: AsyncIterable<ReadMaterialized>): Promise<Saved | null> {
  let saved: Saved | null = null;
  for await (const row of rows) {
    saved ??= { taskset: row.task_id.taskset, agentName: row.agent_ref.name, tasks: new Map(), rollouts: 0 };
    saved.tasks.set(row.task_id.task_id, { index: row._ng_task_index, digest: row._ng_digest });
    saved.rollouts = Math.max(saved.rollouts, row._ng_rollout_index + 1);
  }
  return saved;
}

/** Throws HarborError "store.mismatch" naming what differs. */
export function refuseOthers(saved: Saved, now: { taskset: string; agentName: string; taskIds: string[] }): void {
  const refuse = (what: string) => {
    throw new HarborError("store.mismatch", `Cannot resume: ${what}`, {
      hint: "leave --resume out for a fresh start, or name another file with --output",
    });
  };
  if (saved.agentName !== now.agentName) {
    refuse(`the results are of agent ${saved.agentName}, this run has ${now.agentName}`);
  }
  if (saved.taskset !== now.taskset) {
    refuse(`the results are of dataset ${saved.taskset}, this run has ${now.taskset}`);
  }
  if (now.taskIds.length > 0 && !now.taskIds.some((id) => saved.tasks.has(id))) {
    const few = [...saved.tasks.keys()].slice(0, 3).join(", ");
    refuse(`the results are of another dataset called ${saved.taskset} (its tasks: ${few}…)`);
  }
}

/** Index of every task now: saved ones keep theirs. */
export function indexes(saved: Saved | null, taskIds: readonly string[]): Map<string, number> {
  let next = saved === null ? 0 : Math.max(-1, ...[...saved.tasks.values()].map(({ index }) => index)) + 1;
  return new Map(taskIds.map((id) => [id, saved?.tasks.get(id)?.index ?? next++]));
}

/** Ids of tasks that changed since the results were made: they run again. */
export function changedTasks(saved: Saved, digests: ReadonlyMap<string, string>): string[] {
  return [...digests].filter(([id, digest]) => (saved.tasks.get(id)?.digest ?? digest) !== digest).map(([id]) => id);
}
