/**
 * Finds the task folders below a dataset's root (task-format §1.3): a folder with task.toml is a task and is not
 * searched further; at most six levels down; hidden folders skipped; links never followed; siblings in code-point order.
 */
import { lstatSync, readdirSync } from "node:fs";
import { errno } from "../errors.ts";
import { sortByCodePoint } from "../files/order.ts";
import { reasonOf } from "../files/reason.ts";
import { isFolder, statKind } from "../files/tree.ts";

const DEPTH = 6;

export interface Found {
  /** Folder name. */
  id: string;
  /** POSIX path below the root. */
  path: string;
  /** The folder is a symbolic link. */
  linked: boolean;
}

export interface Discovery {
  tasks: Found[];
  /** Paths that hold tasks perhaps, and could not be looked at. */
  unreadable: { path: string; detail: string }[];
  /** Folders whose names are not UTF-8, which nothing here can open. */
  unnamed: string[];
  /** Linked folders without a task.toml, which are not searched. */
  links: string[];
}

/** Every task folder below `root`, which must be a readable folder and no task itself. */
export function discoverTasks(root: string): Discovery {
  const found: Discovery = { tasks: [], unreadable: [], unnamed: [], links: [] };
  search(root, "", 1, found);
  return found;
}

function search(root: string, prefix: string, depth: number, found: Discovery): void {
  for (const { name, linked } of subfolders(root, prefix, found)) {
    const path = prefix === "" ? name : `${prefix}/${name}`;
    if (name.includes("\ufffd") && statKind(`${root}/${path}`) === undefined) {
      found.unnamed.push(path);
      continue;
    }
    let isTask: boolean;
    try {
      isTask = holdsTaskToml(`${root}/${path}`);
    } catch (error) {
      found.unreadable.push({ path, detail: reasonOf(error) });
      continue;
    }
    if (isTask) found.tasks.push({ id: name, path, linked });
    else if (linked) found.links.push(path);
    else if (depth < DEPTH) search(root, path, depth + 1, found);
  }
}

function subfolders(root: string, prefix: string, found: Discovery): { name: string; linked: boolean }[] {
  const folder = prefix === "" ? root : `${root}/${prefix}`;
  const linked = new Map<string, boolean>();
  try {
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      if (entry.name.startsWith(".")) continue;
      if (entry.isDirectory()) linked.set(entry.name, false);
      else if (entry.isSymbolicLink() && isFolder(`${folder}/${entry.name}`)) linked.set(entry.name, true);
      else if (!entry.isFile() && statKind(`${folder}/${entry.name}`) === "dir") linked.set(entry.name, false);
    }
  } catch (error) {
    found.unreadable.push({ path: prefix, detail: reasonOf(error) });
  }
  return sortByCodePoint([...linked.keys()]).map((name) => ({ name, linked: linked.get(name)! }));
}

/** Whether a folder holds an entry named task.toml, whatever it is. Throws where that cannot be told. */
export function holdsTaskToml(folder: string): boolean {
  try {
    return lstatSync(`${folder}/task.toml`, { throwIfNoEntry: false }) !== undefined;
  } catch (error) {
    if (errno(error) === "ENOTDIR") return false;
    throw error;
  }
}

/** The first folder of each ID that more than one folder has, by the path of every later one. */
export function duplicates(tasks: readonly Found[]): Map<string, string> {
  const first = new Map<string, string>();
  const others = new Map<string, string>();
  for (const { id, path } of tasks) {
    const earlier = first.get(id);
    if (earlier === undefined) first.set(id, path);
    else {
      others.set(path, earlier);
      if (!others.has(earlier)) others.set(earlier, path);
    }
  }
  return others;
}
