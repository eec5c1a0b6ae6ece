/** What lies in a task folder, listed once for all of its hashes. */
import { readlinkSync, realpathSync, type Stats } from "node:fs";
import { dirname, resolve } from "node:path";
import { HarborError } from "../errors.ts";
import { type Entry, isFolder, readFolder, statTarget, walkTree } from "../files/tree.ts";
import { type HarborIgnore, NO_PATTERNS, readHarborIgnore } from "../task/harborignore.ts";

/** The folders of a task whose files belong to it (task-format §9.1). */
export const TASK_FOLDERS = ["environment", "tests", "solution", "steps"];

/** The files of a task's root that one of its hashes covers, or that decide what the folder is and what is covered. */
const BELONGS = new Set([
  ...["task.toml", "instruction.md", "README.md", "trajectory.json", "task_data.json", ".gitignore", "tasks.jsonl"],
  ...TASK_FOLDERS,
]);

export class TaskTree {
  #root: Entry[] | undefined;
  #below = new Map<string, Entry[]>();
  #ignore: HarborIgnore | undefined;
  #realFolder: string | undefined;

  constructor(readonly folder: string) {}

  /** What belongs to the task directly in its folder; whatever else lies there is not looked at. */
  root(): Entry[] {
    return this.#root ??= readFolder(this.folder, "", (name) => BELONGS.has(name));
  }

  /**
   * Everything below one of the task's folders, paths relative to the task; a folder that is a link is entered as long
   * as it stays inside the task, links below it are not. Empty when there is no such folder.
   */
  below(name: string): Entry[] {
    let entries = this.#below.get(name);
    if (entries === undefined) {
      entries = [];
      const found = this.root().find((entry) => entry.name === name);
      const enter = found?.kind === "dir" || (found?.kind === "link" && isFolder(this.at(name)) && !this.escapes(name));
      if (enter) walkTree(this.folder, (entry) => void entries!.push(entry), name);
      this.#below.set(name, entries);
    }
    return entries;
  }

  /** Whether one of the task's folders is a link that leads out: a link to `/` must not make us read the machine. */
  escapes(name: string): boolean {
    const isLink = this.root().some((entry) => entry.name === name && entry.kind === "link");
    return isLink && isFolder(this.at(name)) && this.leadsOut(name);
  }

  /** Throws HarborError "task.invalid" when a link leads out of the task folder, also to where nothing is. */
  refuseEscape(path: string): void {
    if (!this.leadsOut(path)) return;
    throw new HarborError("task.invalid", `Task file escapes the task folder: ${path}`, {
      hint: "put what it leads to there",
      details: { path },
    });
  }

  /** Whether a link's target lies outside the task folder; a broken link is judged by where it points. */
  leadsOut(path: string): boolean {
    this.#realFolder ??= realpathSync(this.folder);
    const at = this.at(path);
    const place = this.target(path) === undefined
      ? resolve(realpathSync(dirname(at)), readlinkSync(at))
      : realpathSync(at);
    return !`${place}/`.startsWith(`${this.#realFolder}/`);
  }

  /** Whether there is an entry of this name directly in the task folder; false where it cannot be listed. */
  holds(name: string): boolean {
    try {
      return this.root().some((entry) => entry.name === name);
    } catch {
      return false;
    }
  }

  ignore(): HarborIgnore {
    return this.#ignore ??= this.#hasIgnoreFile() ? readHarborIgnore(this.folder) : NO_PATTERNS;
  }

  at(path: string): string {
    return `${this.folder}/${path}`;
  }

  /** What a path of the task leads to, links followed. */
  target(path: string): Stats | undefined {
    return statTarget(this.at(path));
  }

  /** Links count: a file may lie behind one, where the walk does not go. */
  #hasIgnoreFile(): boolean {
    return TASK_FOLDERS.some((folder) =>
      this.below(folder).some(({ name, kind }) => name === ".harborignore" || kind === "link")
    );
  }
}
