/** Makes the folders that a mount plan asks for, with the modes it asks for. */
import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { MountPlan, Storage } from "./_namespace_mounts.ts";

export function makeFolderHere(path: string, mode: number): void {
  mkdirSync(path);
  chmodSync(path, mode); // whatever our umask is
}

/** A sandbox's own folders and its fstab. Returns the folder that stands for `tree`. */
export function makeTree(base: string, plan: MountPlan, storage: Storage): string {
  const tree = join(base, "tree");
  mkdirSync(tree, { mode: 0o755 });
  // In memory the same folders are made after the tmpfs stands over `tree`: they are copied from beside it.
  const own = storage === "memory" ? join(base, "own") : tree;
  if (own !== tree) mkdirSync(own, { mode: 0o755 });
  for (const { path, mode } of plan.folders) makeFolderHere(join(own, path), mode);
  writeFileSync(join(base, "fstab"), plan.fstab);
  return own;
}
