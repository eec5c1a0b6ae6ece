/**
 * What of this machine no task may see: the folders of tasks, with their solutions and tests, and the results of the
 * run. Folders that hold more than that (`/tmp`, `/usr`) are not hidden whole. Pure.
 */
import type { RunPaths } from "../rollouts/paths.ts";

/** Folders that programs need or that everybody uses. */
const SHARED = new Set([
  ...["/", "/bin", "/etc", "/home", "/lib", "/lib64", "/media", "/mnt", "/opt", "/root", "/sbin", "/srv", "/tmp"],
  ...["/usr", "/usr/bin", "/usr/lib", "/usr/local", "/usr/share", "/var", "/var/lib", "/var/tmp"],
]);

/** `target`: the task or dataset folder that was named. */
export function hiddenPaths(target: string, taskFolders: readonly string[], paths: RunPaths): string[] {
  const { folder, stem: _, ...files } = paths;
  const results = Object.values(files);
  return [
    ...(SHARED.has(target) ? taskFolders : [target]),
    ...(SHARED.has(folder) ? [...results, ...results.map((path) => `${path}.bak`)] : [folder]),
  ];
}
