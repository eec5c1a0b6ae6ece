/** What Harbor puts below every task's own file (spec/images-and-sandboxes §6.1): `main` with its image, kept alive. */
import type { Task } from "../task/task.ts";
import { type Table, table } from "./document.ts";

/** The command that keeps `main` alive; a task's own replaces it. */
export const KEEP_ALIVE = ["sh", "-c", "sleep infinity"];

export function baseDocument(task: Pick<Task, "environment">, taskImage: string): Table {
  const { docker_image } = task.environment;
  const main = table([["image", docker_image ?? taskImage], ["command", [...KEEP_ALIVE]]]);
  return table([["services", table([["main", main]])]]);
}
