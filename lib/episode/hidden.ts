/**
 * What of this machine no task may see: the folders of tasks, with their solutions and tests, and the results of the
 * run. Folders that hold more than that (`/tmp`, `/usr`) are not hidden whole.
 */
import { readdirSync } from "node:fs";
import { join } from "node:path";
import type { RunPaths } from "../rollouts/paths.ts";
import { holdsTaskToml } from "../task/discover.ts";

/** Folders that programs need or that everybody uses. */
const SHARED = new Set([
  ...["/", "/bin", "/etc", "/home", "/lib", "/lib64", "/media", "/mnt", "/opt", "/root", "/sbin", "/srv", "/tmp"],
  ...["/usr", "/usr/bin", "/usr/lib", "/usr/local", "/usr/share", "/var", "/var/lib", "/var/tmp"],
]);

/**
 * `target`: the task or dataset folder that was named. `neighbours`: what else of the dataset of a single task holds
 * answers, see `neighboursOf`.
 */
export function hiddenPaths(
  target: string,
  taskFolders: readonly string[],
  paths: RunPaths,
  neighbours: readonly string[] = [],
): string[] {
  const { folder, stem: _, ...files } = paths;
  const results = Object.values(files);
  return [
    ...(SHARED.has(target) ? taskFolders : [target]),
    ...neighbours,
    ...(SHARED.has(folder) ? [...results, ...results.map((path) => `${path}.bak`)] : [folder]),
  ];
}

/** The other tasks in a dataset folder and its shared verifier; what cannot be looked at is left out. */
export function neighboursOf(datasetFolder: string): string[] {
  const isAnswer = (name: string) => {
    try {
      return name === "verifier.py" || holdsTaskToml(join(datasetFolder, name));
    } catch {
      return false;
    }
  };
  try {
    return readdirSync(datasetFolder).filter(isAnswer).sort().map((name) => join(datasetFolder, name));
  } catch {
    return [];
  }
}
