/**
 * What of a dataset goes into a bundle: its task folders whole, and the files beside them that belong to it. Links stay
 * as they are written; files stay executable or not, and become readable for everyone, since a bundle is used by others
 * than who made it. Reads, writes nothing.
 */
import { readlinkSync, statSync } from "node:fs";
import { join } from "node:path";
import { HarborError } from "../errors.ts";
import { reasonOf } from "../files/reason.ts";
import { readFolder, statTarget, walkTree } from "../files/tree.ts";

/** An entry of a bundle, by its POSIX path below the bundle's folder. */
export type PlannedEntry =
  | { path: string; kind: "folder"; empty: boolean; mode: number }
  | { path: string; kind: "file"; from: string; bytes: number; mode: number }
  | { path: string; kind: "text"; text: string }
  | { path: string; kind: "link"; target: string };

export const EXECUTABLE = 0o100;

/** Files of a dataset's own folder that belong to it. */
const OF_DATASET =
  /^(?:dataset\.toml|manifest\.toml|compose-images\.json|built-images\.json|verifier\.py|task_data\.py|(?:README|LICEN[CS]E|COPYING|NOTICE|CITATION)(?:[.-].*)?)$/i;

/** The files beside the tasks, below `to`. Throws "task.invalid" naming one that cannot be read. */
export function planDatasetFiles(folder: string, to: string): PlannedEntry[] {
  return readFolder(folder, "", (name) => OF_DATASET.test(name)).flatMap(({ name }) => {
    const found = statTarget(join(folder, name));
    return found?.isFile() ? [fileEntry(join(folder, name), `${to}/${name}`)] : [];
  });
}

/** What version control keeps of the task as a whole; below environment/ and the like it is the task's own. */
const NOT_OF_TASK = new Set([".git", ".hg", ".svn"]);

export interface PlannedTask {
  entries: PlannedEntry[];
  /** Sockets, pipes and devices, which no file system carries. */
  leftOut: string[];
}

/** A task folder, all of it, below `to`. Throws HarborError "task.invalid" naming what cannot be read. */
export function planTask(folder: string, to: string): PlannedTask {
  const planned: PlannedTask = { entries: [], leftOut: [] };
  const { entries } = planned;
  const folders = [folderEntry(folder, to)];
  entries.push(folders[0]!);
  walkTree(folder, ({ path, name, kind }) => {
    if (kind === "dir" && path === name && NOT_OF_TASK.has(name)) return false;
    const at = `${to}/${path}`;
    const parent = folders.findLast((one) => at.startsWith(`${one.path}/`))!;
    folders.length = folders.indexOf(parent) + 1; // the walk goes depth first: what is deeper is done
    if (kind === "other") return void planned.leftOut.push(path);
    parent.empty = false;
    if (kind === "file") entries.push(fileEntry(join(folder, path), at));
    else if (kind === "link") entries.push({ path: at, kind: "link", target: readlinkSync(join(folder, path)) });
    else {
      const entry = folderEntry(join(folder, path), at);
      folders.push(entry);
      entries.push(entry);
    }
  });
  return planned;
}

function folderEntry(from: string, path: string): Extract<PlannedEntry, { kind: "folder" }> {
  return { path, kind: "folder", empty: true, mode: (statSync(from).mode & 0o777) | 0o755 };
}

function fileEntry(from: string, path: string): Extract<PlannedEntry, { kind: "file" }> {
  try {
    const { size, mode } = statSync(from);
    const executable = (mode & EXECUTABLE) === 0 ? 0 : 0o111;
    return { path, kind: "file", from, bytes: size, mode: (mode & 0o777) | 0o644 | executable };
  } catch (cause) {
    throw new HarborError("task.invalid", `Cannot read ${from}: ${reasonOf(cause)}`, { cause });
  }
}
