/**
 * Identity of a task folder: the task digest that rows and manifests carry (task-format §9.1, exact), Harbor 0.25's
 * package hash and directory checksum (harbor-upstream §3, exact), and the hash of its build context. Same bytes, same
 * values: modes, times, order, locale and machine do not matter.
 */
import { hash } from "node:crypto";
import { readFileSync } from "node:fs";
import { errno, HarborError } from "../errors.ts";
import { parsePatterns, verdictOn } from "../files/gitignore.ts";
import { reasonOf } from "../files/reason.ts";
import type { Entry } from "../files/tree.ts";
import { contextHash } from "./context.ts";
import { dirhashOf } from "./dirhash.ts";
import { FileReader } from "./reader.ts";
import { TASK_FOLDERS, TaskTree } from "./tree.ts";

export type HashName = "task_digest" | "package_hash" | "context_hash" | "dirhash";

/** Why a hash could not be computed. */
export interface HashProblem {
  hash: HashName;
  message: string;
  hint?: string;
}

export interface TaskHashes {
  /** 64 hex digits; null where `problems` says why. */
  task_digest: string | null;
  /** 64 hex digits, without `sha256:`. */
  package_hash: string | null;
  /** 32 hex digits. */
  context_hash: string | null;
  /** Only when asked for: it reads files that no other hash covers. */
  dirhash?: string | null;
  problems: HashProblem[];
}

export interface HashOptions {
  /** `docker_image` of task.toml, which names a context without files. */
  dockerImage?: string;
  dirhash?: boolean;
  /** The context's hash, when it is known. */
  contextHash?: string;
  /** Has read some of the task's files already. */
  reader?: FileReader;
}

/**
 * Every hash of a task folder that can be computed, by one walk and one read of each file; a tree that was walked
 * already is not walked again. Throws nothing.
 */
export function hashTask(task: string | TaskTree, options: HashOptions = {}): TaskHashes {
  const tree = typeof task === "string" ? new TaskTree(task) : task;
  const { reader = new FileReader() } = options;
  const problems: HashProblem[] = [];
  const settle = (name: HashName, compute: () => string): string | null => {
    try {
      return compute();
    } catch (error) {
      if (error instanceof HarborError) problems.push({ hash: name, message: error.message, hint: error.hint });
      else if (errno(error) !== undefined) problems.push({ hash: name, message: `Cannot read it: ${reasonOf(error)}` });
      else throw error;
      return null;
    }
  };
  // The context goes first: its stream needs the bytes, the others only the sums that are left behind.
  const context_hash = options.contextHash ??
    settle("context_hash", () => contextHashOf(tree, reader, options.dockerImage));
  const task_digest = settle("task_digest", () => taskDigestOf(tree, reader));
  const package_hash = settle("package_hash", () => packageHashOf(tree, reader));
  const dirhash = options.dirhash ? settle("dirhash", () => dirhashOf(tree, reader)) : undefined;
  return { task_digest, package_hash, context_hash, ...(dirhash !== undefined && { dirhash }), problems };
}

/** The task folder digest (§9.1). Throws HarborError "task.invalid" naming the file that stands in the way. */
export const taskDigest = (folder: string): string => taskDigestOf(new TaskTree(folder), new FileReader());

function contextHashOf(tree: TaskTree, reader: FileReader, dockerImage: string | undefined): string {
  if (tree.escapes("environment")) tree.refuseEscape("environment");
  const prefix = "environment/".length;
  const entries = tree.below("environment").map((entry) => ({ ...entry, path: entry.path.slice(prefix) }));
  return contextHash(tree.at("environment"), { dockerImage, reader, entries });
}

const DIGEST_FILES = ["task.toml", "instruction.md", "README.md", "trajectory.json", "task_data.json"];
const LEFTOVER = /(?:^|\/)(?:__pycache__|\.DS_Store|[^/]*(?:\.pyc|\.swp|\.swo|~))(?:\/|$)/;

function taskDigestOf(tree: TaskTree, reader: FileReader): string {
  let lines = "";
  const add = (entry: Entry): void => {
    if (LEFTOVER.test(entry.path)) return;
    if (entry.kind === "link" ? leadsToFile(tree, entry.path) : entry.kind === "file") {
      lines += `${entry.path}\0${reader.sum(tree.at(entry.path))}\n`;
    }
  };
  for (const entry of tree.root()) {
    if (DIGEST_FILES.includes(entry.name)) add(entry);
    else if (TASK_FOLDERS.includes(entry.name)) entry.kind === "dir" ? tree.below(entry.name).forEach(add) : add(entry);
  }
  return hash("sha256", lines, "hex");
}

/** Whether a link counts by the bytes of the file it leads to. Throws when it leads to a folder or out of the task. */
function leadsToFile(tree: TaskTree, path: string): boolean {
  const target = tree.target(path);
  if (target?.isDirectory()) {
    throw new HarborError("task.invalid", `Directory symlinks are not allowed in a task: ${path}`, {
      hint: "put the folder itself there",
      details: { path },
    });
  }
  tree.refuseEscape(path);
  return target?.isFile() ?? false;
}

const PACKAGE_FILES = ["task.toml", "instruction.md", "README.md", "trajectory.json"];
/** Harbor's default list as gitignore reads it: `__pycache__/` is folders only, and no pattern gets past a line feed. */
const PACKAGE_LEFTOVER = /^(?:[^\n]+\/)?(?:__pycache__\/|(?:\.DS_Store|[^/]*(?:\.pyc|\.swp|\.swo|~))(?:\/|$))/;

function packageHashOf(tree: TaskTree, reader: FileReader): string {
  const leftOut = packageFilter(tree);
  const ignore = tree.ignore();
  let lines = "";
  const add = ({ path, kind }: Entry): void => {
    if (kind !== "file" && kind !== "link") return;
    if (leftOut(path) || ignore.excludes(path, kind)) return;
    if (kind === "link") {
      if (!tree.target(path)?.isFile()) return;
      tree.refuseEscape(path); // Harbor would take what it leads to, but no two machines have the same
    }
    lines += `${path}\0${reader.sum(tree.at(path))}\n`;
  };
  for (const entry of tree.root()) {
    const kind = entry.kind === "link" ? targetKind(tree, entry.path) : entry.kind;
    if (kind === "nothing") continue;
    if (PACKAGE_FILES.includes(entry.name)) {
      if (kind !== "file") {
        throw new HarborError("task.invalid", `Cannot package ${entry.name}: it is not a file`, {
          hint: "rename it, or put a file there",
        });
      }
      add(entry);
    } else if (TASK_FOLDERS.includes(entry.name)) {
      if (kind !== "dir") {
        throw new HarborError("task.invalid", `Cannot package ${entry.name}/: it is not a folder`, {
          hint: "rename it, or put a folder there",
        });
      }
      if (entry.kind === "link") tree.refuseEscape(entry.name);
      tree.below(entry.name).forEach(add);
    }
  }
  return hash("sha256", lines, "hex");
}

function targetKind(tree: TaskTree, path: string): "file" | "dir" | "other" | "nothing" {
  const target = tree.target(path);
  if (target === undefined) return "nothing";
  return target.isFile() ? "file" : target.isDirectory() ? "dir" : "other";
}

/** The task's own `.gitignore` replaces the default list. */
function packageFilter(tree: TaskTree): (path: string) => boolean {
  const found = tree.root().find(({ name }) => name === ".gitignore");
  if (found === undefined || (found.kind === "link" && tree.target(".gitignore") === undefined)) {
    return (path) => PACKAGE_LEFTOVER.test(path);
  }
  if (found.kind === "link") tree.refuseEscape(".gitignore");
  if (!tree.target(".gitignore")?.isFile()) {
    throw new HarborError("task.invalid", "Cannot read .gitignore: it is not a file", {
      hint: "remove it, or make it a text file",
    });
  }
  const patterns = parsePatterns(decode(tree.at(".gitignore")), "git", ".gitignore");
  return (path) => verdictOn(patterns, path) === true;
}

function decode(path: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(readFileSync(path));
  } catch (cause) {
    throw new HarborError(
      "task.invalid",
      `Cannot read .gitignore: ${cause instanceof TypeError ? "it is not UTF-8" : reasonOf(cause)}`,
      { cause, hint: "make it a UTF-8 text file that this user may read" },
    );
  }
}
