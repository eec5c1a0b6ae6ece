/**
 * `.harborignore` of Harbor 0.25: what lies in a task folder but is not part of the task. Such files are not uploaded,
 * not packaged and not held to containment; the task digest covers them all the same (task-format §0).
 *
 * Patterns take effect below their own folder, and only inside `tests/`, `solution/`, `steps/<name>/tests/` and
 * `steps/<name>/solution/`. The last match wins, a deeper file over a shallower one; a folder once excluded hides all
 * that lies below it. A link is excluded as well when what it leads to is. The file itself is never part of the task.
 */
import { readFileSync, realpathSync } from "node:fs";
import { relative } from "node:path";
import { HarborError } from "../errors.ts";
import { parsePatterns, type Pattern, verdictOn } from "../files/gitignore.ts";
import { reasonOf } from "../files/reason.ts";
import { isFolder, type Kind, readFolder, statKind, statTarget } from "../files/tree.ts";

const NAME = ".harborignore";

export interface HarborIgnore {
  /**
   * Whether the entry at this POSIX path below the task folder is left out. `kind` is that of the entry itself, as a
   * walk reports it. Throws as `readHarborIgnore` does, for a file that lies behind a link to a folder.
   */
  excludes(path: string, kind: Kind): boolean;
}

/** For a task that is known to have no such file where it takes effect. */
export const NO_PATTERNS: HarborIgnore = { excludes: (path) => isIgnoreFile(path) };

/**
 * Reads every `.harborignore` that takes effect. Throws HarborError "task.invalid" for one that is a folder, is not
 * UTF-8, holds a bad pattern or is a link to outside the task.
 */
export function readHarborIgnore(taskFolder: string): HarborIgnore {
  const rules = new Rules(taskFolder);
  for (const scope of scopesOf(taskFolder)) rules.readScope(scope);
  return rules;
}

function scopesOf(taskFolder: string): string[] {
  const steps = isFolder(`${taskFolder}/steps`)
    ? readFolder(taskFolder, "steps").filter(({ kind }) => kind === "dir" || kind === "link").map(({ path }) => path)
    : [];
  return ["", ...steps.map((step) => `${step}/`)]
    .flatMap((prefix) => [`${prefix}tests`, `${prefix}solution`])
    .filter((path) => isFolder(`${taskFolder}/${path}`));
}

class Rules implements HarborIgnore {
  /** Patterns by the folder that holds them; an empty list for a folder without. */
  #patterns = new Map<string, Pattern[]>();
  #excludedFolders = new Map<string, boolean>();
  #realFolders = new Map<string, string>();
  #realRoot: string | undefined;

  constructor(readonly taskFolder: string) {}

  /** A folder that is a link out of the task is not looked into. */
  readScope(folder: string): void {
    if (this.#inside(folder) !== undefined) this.#readBelow(folder);
  }

  #readBelow(folder: string): void {
    for (const { path, name, kind } of readFolder(this.taskFolder, folder)) {
      if (name === NAME) continue; // one that has nothing to say about is never read
      this.#patternsOf(folder);
      if (kind === "dir" && !this.#byName(path, true)) this.#readBelow(path);
    }
  }

  excludes(path: string, kind: Kind): boolean {
    if (isIgnoreFile(path)) return true;
    if (kind !== "link") return this.#byName(path, kind === "dir") || this.#byRealName(path, kind === "dir");
    const leadsTo = statTarget(`${this.taskFolder}/${path}`);
    if (this.#byName(path, leadsTo?.isDirectory() ?? false)) return true;
    const target = leadsTo === undefined ? undefined : this.#inside(path);
    return target !== undefined && this.#byName(target, leadsTo!.isDirectory());
  }

  /** An entry that was reached through a link to a folder is out as well when it is out where it really lies. */
  #byRealName(path: string, isDir: boolean): boolean {
    const slash = path.lastIndexOf("/");
    if (slash === -1) return false;
    const parent = path.slice(0, slash);
    let real = this.#realFolders.get(parent);
    if (real === undefined) this.#realFolders.set(parent, real = this.#inside(parent) ?? parent);
    return real !== parent && this.#byName(`${real}${path.slice(slash)}`, isDir);
  }

  /** The real place of what a link leads to, below the task folder; undefined outside it. */
  #inside(path: string): string | undefined {
    this.#realRoot ??= realpathSync(this.taskFolder);
    const target = relative(this.#realRoot, realpathSync(`${this.taskFolder}/${path}`));
    return target === ".." || target.startsWith("../") ? undefined : target;
  }

  #byName(path: string, isDir: boolean): boolean {
    const scope = scopeOf(path);
    if (scope === undefined || scope.length >= path.length) return false;
    const parent = path.slice(0, path.lastIndexOf("/"));
    const entry = isDir ? `${path}/` : path;
    if (parent.length > scope.length && this.#folderIsOut(parent)) return true;
    // From the deepest folder up: its word counts more than those above.
    for (let folder = parent;; folder = folder.slice(0, folder.lastIndexOf("/"))) {
      const verdict = verdictOn(this.#patternsOf(folder), entry.slice(folder.length + 1));
      if (verdict !== undefined) return verdict;
      if (folder.length === scope.length) return false;
    }
  }

  #folderIsOut(folder: string): boolean {
    let out = this.#excludedFolders.get(folder);
    if (out === undefined) this.#excludedFolders.set(folder, out = this.#byName(folder, true));
    return out;
  }

  #patternsOf(folder: string): Pattern[] {
    let patterns = this.#patterns.get(folder);
    if (patterns === undefined) this.#patterns.set(folder, patterns = this.#read(`${folder}/${NAME}`));
    return patterns;
  }

  #read(file: string): Pattern[] {
    const path = `${this.taskFolder}/${file}`;
    const kind = statKind(path);
    if (kind === undefined) return [];
    if (kind === "link") {
      const target = statTarget(path);
      if (target === undefined) return [];
      if (this.#inside(file) === undefined) throw invalid(file, "it is a link that leads out of the task folder");
      if (!target.isFile()) throw invalid(file, "it leads to something that is not a file");
    } else if (kind !== "file") throw invalid(file, kind === "dir" ? "it is a folder" : "it is not a regular file");
    return parsePatterns(decode(path, file), "harbor", file);
  }
}

function decode(path: string, file: string): string {
  let bytes: Uint8Array;
  try {
    bytes = readFileSync(path);
  } catch (cause) {
    throw invalid(file, reasonOf(cause), cause);
  }
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (cause) {
    throw invalid(file, "it is not UTF-8", cause);
  }
}

const isIgnoreFile = (path: string): boolean => path.includes(NAME) && path.split("/").includes(NAME);

const SCOPE = /^(?:tests|solution|steps\/[^/]+\/(?:tests|solution))(?=\/|$)/;

const scopeOf = (path: string): string | undefined => SCOPE.exec(path)?.[0];

function invalid(file: string, why: string, cause?: unknown): HarborError {
  return new HarborError("task.invalid", `Cannot read ${file}: ${why}`, {
    cause,
    hint: "a .harborignore is a UTF-8 text file with one gitignore pattern a line",
    details: { file },
  });
}
