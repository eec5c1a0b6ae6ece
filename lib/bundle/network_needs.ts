/** The lines of one task that need a network while it runs (task/network_scan.ts over its files). */
import { readFileSync } from "node:fs";
import { classifyDockerfile } from "../task/dockerfile_mode.ts";
import { languageOf, networkUses } from "../task/network_scan.ts";
import type { Task } from "../task/task.ts";
import type { PlannedEntry } from "./dataset.ts";
import type { NeedsNetwork } from "./schema.ts";

/** No script that a person wrote is longer. */
const LONGEST = 1 << 20;
const RUNS_AT_EPISODE = /^(?:tests|solution|steps)\//;

/**
 * By file and line, in the order of the entries. `entries` are the task's own, planned below `to`; `overlay` tells that
 * RUN lines of its Dockerfile are replayed in the sandbox rather than built into an image.
 */
export function networkNeeds(
  task: Task,
  entries: readonly PlannedEntry[],
  to: string,
  overlay: boolean,
): NeedsNetwork[] {
  if (hasNoNetwork(task)) return [];
  const needs: NeedsNetwork[] = [];
  const add = (file: string, line: number, why: string) => needs.push({ task: task.id, file, line, why });
  if (overlay && task.image.dockerfile !== undefined) {
    const mode = classifyDockerfile(readFileSync(task.image.dockerfile, "utf8"));
    for (const change of mode.mode === "overlay" ? mode.changes : []) {
      if (change.kind !== "run") continue;
      for (const { why } of networkUses(change.command, "shell")) add("environment/Dockerfile", change.line, why);
    }
  }
  for (const entry of entries) {
    if (entry.kind !== "file" || entry.bytes > LONGEST) continue;
    const file = entry.path.slice(to.length + 1);
    if (!RUNS_AT_EPISODE.test(file)) continue;
    const bytes = readFileSync(entry.from);
    if (bytes.subarray(0, 8192).includes(0)) continue;
    const text = bytes.toString("utf8");
    const language = languageOf(file, text.slice(0, 256));
    if (language === undefined) continue;
    for (const { line, why } of networkUses(text, language)) add(file, line, why);
  }
  return needs;
}

/** A task that says so gets none anywhere, and is made for that. */
function hasNoNetwork({ environment, agent, verifier }: Task): boolean {
  return environment.network_mode === "no-network" &&
    [agent, verifier].every(({ network_mode = "no-network" }) => network_mode === "no-network");
}
