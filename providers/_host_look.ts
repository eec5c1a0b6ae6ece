/** What of this machine is shown, as things are mounted now. */
import { type Dirent, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import { isHiddenByName } from "./_host_private.ts";
import { type Child, type HostView, parseMounts, type RootEntry, takeApart, viewOf } from "./_host_view.ts";
import type { Machine } from "./_namespace_machine.ts";

/** Looks anew at each call: engines mount and unmount below /var while we run. */
export function lookAtView(mode: Machine["mode"]): HostView {
  const mounts = parseMounts(readFileSync("/proc/self/mountinfo", "utf8"));
  const view = viewOf(childrenOf("/").flatMap(rootEntry), mounts, isHiddenByName);
  return mode === "root" ? view : takeApart(view, mounts, childrenOf, isHiddenByName);
}

function childrenOf(folder: string): Child[] {
  let entries: Dirent[];
  try {
    entries = readdirSync(folder, { withFileTypes: true });
  } catch {
    return []; // what we cannot read cannot be shown
  }
  return entries.flatMap((entry): Child[] => {
    const { name } = entry;
    if (entry.isSymbolicLink()) return [{ name, kind: "link", target: readlinkSync(join(folder, name)) }];
    if (entry.isDirectory()) return [{ name, kind: "folder" }];
    return entry.isFile() ? [{ name, kind: "file" }] : [];
  });
}

const rootEntry = ({ name, kind, target }: Child): RootEntry[] =>
  kind === "file" ? [] : [{ name, ...(target !== undefined && { link: target }) }];
