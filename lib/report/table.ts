/** The result lines of a run: one value for the tab-separated table and for --json (episodes §9). Pure. */
import { beginning } from "../excerpt.ts";
import { visible } from "../runtime/terminal.ts";
import type { TaskRecord } from "./summary.ts";

/** One line of result. */
export interface Line {
  task_id: string;
  /** Null where the task never became an episode. */
  rollout_index: number | null;
  status: "scored" | "masked" | "failed" | "skipped" | "unvalidated" | "missing";
  /** What the reference solution did; null for other agents. */
  oracle: string | null;
  /** Null for what is no measurement. */
  reward: number | null;
  failure_kind: string | null;
  /** Why, where there is more to say. */
  message: string | null;
  verifier_logs: string | null;
}

export interface Table {
  records: readonly TaskRecord[];
  /** Task id → reason. */
  skipped: Readonly<Record<string, string>>;
  unvalidated: Readonly<Record<string, string>>;
}

/** Lines by task id, then repeat. */
export function lines(table: Table): Line[] {
  const none = { rollout_index: null, oracle: null, reward: null, failure_kind: null, verifier_logs: null };
  const all: Line[] = [
    ...table.records.map(lineOf),
    ...Object.entries(table.skipped).map(([task_id, message]): Line => ({
      task_id,
      status: "skipped",
      message,
      ...none,
    })),
    ...Object.entries(table.unvalidated).map(([task_id, message]): Line => ({
      task_id,
      status: "unvalidated",
      message,
      ...none,
    })),
  ];
  return all.sort((a, b) =>
    a.task_id < b.task_id ? -1 : a.task_id > b.task_id ? 1 : (a.rollout_index ?? 0) - (b.rollout_index ?? 0)
  );
}

function lineOf({ entry, reason }: TaskRecord): Line {
  const { task_id, rollout_index, failure_kind } = entry;
  const status = entry.status === "result" ? (entry.mask_sample ? "masked" : "scored") : entry.status;
  return {
    task_id,
    rollout_index,
    status,
    oracle: entry.response_metadata?.oracle ?? null,
    reward: status === "scored" ? entry.reward : null,
    failure_kind,
    message: reason,
    verifier_logs: entry.paths?.verifier_logs ?? null,
  };
}

export const TABLE_HEADER = "task_id\tstatus\treward";

/** One line of the table. `repeats`: several lines of one task carry their number. */
export function tableLine(line: Line, repeats: boolean): string {
  const id = repeats && line.rollout_index !== null ? `${line.task_id}#${line.rollout_index}` : line.task_id;
  return [id, statusText(line), line.reward === null ? "-" : String(line.reward)].map(oneCell).join("\t");
}

function statusText(line: Line): string {
  const kind = line.failure_kind === null ? "" : ` (${line.failure_kind})`;
  switch (line.status) {
    case "scored":
      return line.oracle === null ? `scored${kind}` : `oracle ${line.oracle}${kind}`;
    case "masked":
      return `masked${kind}`;
    case "failed":
      return `failed: ${beginning(line.message ?? "", 120)}`;
    case "skipped":
      return `skipped: ${line.message}`;
    case "unvalidated":
      return "unvalidated (no solution/)";
    case "missing":
      return "not run";
  }
}

/** Text that stays in its cell and steers no terminal. */
const oneCell = (text: string): string => visible(text.replaceAll(/\s+/g, " ").trim());
