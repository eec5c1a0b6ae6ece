/**
 * The folders of a sandbox on this machine's root: what all of a provider share and what each has for itself, made by
 * the plans of _namespace_mounts.ts.
 */
import { copyFileSync, cpSync, existsSync, lstatSync, mkdirSync, rmdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Network } from "../lib/sandbox/provider.ts";
import type { Mask } from "./_host_private.ts";
import type { HostView } from "./_host_view.ts";
import type { Machine } from "./_namespace_machine.ts";
import { type Layer, type MountPlan, planMounts, planSkeleton } from "./_namespace_mounts.ts";
import type { Rootfs } from "./_namespace_open.ts";
import { ownTools } from "./_namespace_tools.ts";
import { makeFolderHere, makeTree } from "./_namespace_folders.ts";
import type { Way } from "./_namespace_way.ts";

export interface HostRoot {
  machine: Machine;
  view: HostView;
  /** The root folder that lies below every sandbox (makeSkeleton). */
  skeleton: string;
  mask: Mask;
  /** Prepared layers, topmost first. */
  layers: readonly Layer[];
  way: Way;
  network: Network;
}

/** This machine's root, seen through overlays. */
export function hostRootfs(request: HostRoot): Rootfs {
  const { storage } = request.way;
  const notes: string[] = [];
  if (storage === "read-only") {
    notes.push("files: this kernel refuses overlays, so this machine's folders are read-only inside");
  }
  if (storage === "memory") notes.push("files: what the task writes is kept in memory");
  return {
    storage,
    tools: ownTools(request.machine.programs),
    entry: { kind: "pivot" },
    shell: "/bin/bash",
    on: "this machine's root",
    notes,
    layOut: (base, control) => layOut(request, base, control),
    started: (root) => rmdirSync(`${root}/.old`),
  };
}

/** Makes a sandbox's own folders and its fstab. */
function layOut(request: HostRoot, base: string, control: string): MountPlan {
  const { machine, view, mask, way, skeleton } = request;
  const plan = planMounts({
    base,
    control,
    skeleton,
    storage: way.storage,
    folders: view.folders,
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
  makeTree(base, plan, way.storage);
  if (way.storage === "read-only") {
    const copy = { recursive: true, verbatimSymlinks: true, force: true };
    cpSync(join(skeleton, "root"), join(base, "tree/root"), copy);
  }
  return plan;
}

/** Where a layer has a folder: the pieces that are shown may have changed since it was made. */
function layerFolder(layer: Layer, folder: string): string[] {
  const key = Object.keys(layer).filter((key) => key !== "/" && `${folder}/`.startsWith(`${key}/`)).sort().at(-1);
  if (key === undefined) return [];
  const path = layer[key] + folder.slice(key.length);
  return isFolder(path) ? [path] : [];
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
