/**
 * The folders of a sandbox on this machine: what all of a provider share and what each has for itself, made by the plans
 * of _namespace_mounts.ts.
 */
import { chmodSync, copyFileSync, cpSync, existsSync, lstatSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Clock } from "../lib/runtime/clock.ts";
import type { Runner } from "../lib/runtime/runner.ts";
import type { Network, SandboxSpec } from "../lib/sandbox/provider.ts";
import type { Machine } from "./_host_machine.ts";
import type { Networks } from "./_host_networks.ts";
import type { Mask } from "./_host_private.ts";
import type { HostView } from "./_host_view.ts";
import { type Layer, type MountPlan, planMounts, planSkeleton, type Storage } from "./_namespace_mounts.ts";

/** How sandboxes are made here, as the last attempt that worked found out. */
export interface Way {
  storage: Storage;
  sysfs: boolean;
}

export interface OpenRequest {
  spec: SandboxSpec;
  machine: Machine;
  mask: Mask;
  /** Prepared layers, topmost first. */
  layers: Layer[];
  way: Way;
  network: Network;
  networks: Networks | undefined;
  /** Folder of this sandbox on this machine, empty. */
  base: string;
  folders: Folders;
  id: string;
  maxProcesses: number;
  runner: Runner;
  clock: Clock;
}

/** Folders that a provider's sandboxes share. Absolute. */
export interface Folders {
  /** The root folder that lies below every sandbox (makeSkeleton). */
  skeleton: string;
  /** Control folders whose named pipes are ready for another sandbox. */
  controls: string[];
  /** Makes an empty control folder. */
  makeControl(): string;
  /** Takes a sandbox's folder out of the way now and removes it in its own time. */
  discard(base: string): Promise<void>;
}

/** Makes a sandbox's own folders and its fstab. */
export function layOut(request: OpenRequest, control: string): MountPlan {
  const { base, machine, mask, way } = request;
  const { skeleton } = request.folders;
  const plan = planMounts({
    base,
    control,
    skeleton,
    storage: way.storage,
    folders: machine.view.folders,
    lowers: (folder) => [
      ...request.layers.flatMap((layer) => layerFolder(layer, folder)),
      ...(existsSync(join(mask.layer, folder)) ? [join(mask.layer, folder)] : []),
    ],
    rootLowers: request.layers.flatMap((layer) => layer["/"] ?? []),
    covered: way.storage === "read-only" ? mask.hidden.map((path) => ({ path, folder: isFolder(path) })) : [],
    sysfs: way.sysfs && request.network !== "host",
    ttyGroup: machine.ids !== "own",
    procEntries: machine.procEntries,
    sysPaths: machine.sysPaths,
  });
  const tree = join(base, "tree");
  mkdirSync(tree, { mode: 0o755 });
  // In memory the same folders are made after the tmpfs stands over `tree`: they are copied from beside it.
  const own = way.storage === "memory" ? join(base, "own") : tree;
  if (own !== tree) mkdirSync(own, { mode: 0o755 });
  for (const { path, mode } of plan.folders) makeFolderHere(join(own, path), mode);
  if (way.storage === "read-only") {
    const copy = { recursive: true, verbatimSymlinks: true, force: true };
    cpSync(join(skeleton, "root"), join(tree, "root"), copy);
  }
  writeFileSync(join(base, "fstab"), plan.fstab);
  return plan;
}

/** Where a layer has a folder: the pieces that are shown may have changed since it was made. */
function layerFolder(layer: Layer, folder: string): string[] {
  const key = Object.keys(layer).filter((key) => key !== "/" && `${folder}/`.startsWith(`${key}/`)).sort().at(-1);
  if (key === undefined) return [];
  const path = layer[key] + folder.slice(key.length);
  return isFolder(path) ? [path] : [];
}

function makeFolderHere(path: string, mode: number): void {
  mkdirSync(path);
  chmodSync(path, mode); // whatever our umask is
}

/** Makes the root folder that all sandboxes of a provider share, and beside it an empty folder. */
export function makeSkeleton(folder: string, view: HostView): void {
  const plan = planSkeleton({ folders: view.folders, links: view.links, plain: view.plain, copies: view.files });
  const root = join(folder, "root");
  mkdirSync(folder, { mode: 0o700 });
  makeFolderHere(root, 0o755);
  makeFolderHere(join(folder, "none"), 0o555);
  for (const [path, mode] of plan.folders) makeFolderHere(join(root, path), mode);
  for (const path of plan.files) writeFileSync(join(root, path), "");
  for (const [path, target] of plan.links) symlinkSync(target, join(root, path));
  for (const path of plan.copies) copyReadable(path, join(root, path));
}

function copyReadable(source: string, target: string): void {
  try {
    copyFileSync(source, target);
  } catch {
    // unreadable to us is absent inside
  }
}

function isFolder(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
}
