/** Compose files as commands read them: a task's own, and those that the operator names on the command line. */
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { type ComposeReading, type ComposeRequest, readCompose } from "../lib/compose/mod.ts";
import { HarborError } from "../lib/errors.ts";
import type { EpisodeSettings } from "../lib/episode/settings.ts";
import { imageName } from "../lib/images/plan.ts";
import type { Task } from "../lib/task/task.ts";

/** Reads a task's Compose files; null for a task that has none and gets none. */
export const composeReader =
  (facts: Omit<ComposeRequest, "task" | "taskImage">) => (task: Task): ComposeReading | null =>
    task.image.mode !== "compose" && facts.overlays.length === 0
      ? null
      : readCompose({ task, taskImage: imageName(task.contextHash ?? task.id), ...facts });

/** `harbor_environment_server.compose_overlay` as absolute paths, in order. Throws "target.missing" for one that is not there. */
export function composeOverlays({ compose_overlay }: Pick<EpisodeSettings, "compose_overlay">, cwd: string): string[] {
  return compose_overlay.map((named) => {
    const path = resolve(cwd, named);
    if (existsSync(path)) return path;
    throw new HarborError("target.missing", `harbor_environment_server.compose_overlay: ${named} does not exist`, {
      hint: "name Compose files by their paths, relative to the working directory",
    });
  });
}
