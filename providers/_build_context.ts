/** The files of a build context as COPY and ADD see them: patterns, folders, and what .dockerignore leaves out. */
import { lstatSync, readFileSync, statSync } from "node:fs";
import { basename, join, posix } from "node:path";
import { walkTree } from "../lib/files/tree.ts";

export interface ContextEntry {
  /** Below the folder that is copied. */
  name: string;
  /** Absolute. */
  path: string;
  kind: "file" | "link" | "folder";
}

export type ContextSource =
  | { kind: "file"; name: string; path: string }
  | { kind: "folder"; path: string; entries: ContextEntry[] };

/** The files of a build context, without what .dockerignore leaves out. */
export class BuildContext {
  #patterns: { test: RegExp; keep: boolean }[];

  /** `ignoreFile`: what is read instead of `.dockerignore` where it is there (`<Dockerfile>.dockerignore`). */
  constructor(readonly folder: string, ignoreFile?: string) {
    const text = textOf(ignoreFile) ?? textOf(join(folder, ".dockerignore")) ?? "";
    this.#patterns = text.split("\n").map((line) => line.trim()).filter((line) => line !== "" && !line.startsWith("#"))
      .map((line) => {
        const keep = line.startsWith("!");
        const pattern = posix.normalize(line.slice(keep ? 1 : 0).trim()).replace(/^\/+|\/+$/g, "");
        return { test: globExpression(pattern), keep };
      });
  }

  /** Docker's rule: the last matching pattern decides, and a pattern that matches a folder matches what is in it. */
  #left(path: string): boolean {
    let left = false;
    const parents = path.split("/").map((_, at, parts) => parts.slice(0, at + 1).join("/"));
    for (const { test, keep } of this.#patterns) if (parents.some((parent) => test.test(parent))) left = !keep;
    return left;
  }

  /** Context paths that a COPY source means; "" is the context itself. */
  match(source: string): string[] {
    const clean = posix.normalize(`/${source}`).replace(/^\/+|\/+$/g, "");
    if (clean === "") return [""];
    if (!/[*?[]/.test(clean)) return this.#exists(clean) && !this.#leftWholly(clean) ? [clean] : [];
    const test = globExpression(clean);
    const found: string[] = [];
    walkTree(this.folder, ({ path }) => void (test.test(path) && !this.#left(path) && found.push(path)));
    return found;
  }

  /** A folder that is left out may still hold exceptions. */
  #leftWholly(path: string): boolean {
    return this.#left(path) && !(this.#isFolder(path) && this.#patterns.some(({ keep }) => keep));
  }

  /** What stands at a context path: a file, or a folder with everything in it, parents first. */
  source(path: string): ContextSource {
    const at = (inner: string) => join(this.folder, inner);
    if (!this.#isFolder(path)) return { kind: "file", name: basename(path), path: at(path) };
    const entries: ContextEntry[] = [];
    walkTree(this.folder, ({ path: inner, kind }) => {
      if (kind === "other" || this.#left(inner)) return;
      const type = kind === "dir" ? "folder" : kind;
      entries.push({ name: posix.relative(path, inner), path: at(inner), kind: type });
    }, path);
    return { kind: "folder", path: at(path), entries };
  }

  #exists(path: string): boolean {
    return lstatSync(join(this.folder, path), { throwIfNoEntry: false }) !== undefined;
  }

  #isFolder(path: string): boolean {
    return statSync(join(this.folder, path), { throwIfNoEntry: false })?.isDirectory() === true;
  }
}

/** Go's filepath.Match with Docker's `**`: `*` and `?` stay within a name. */
export function globExpression(pattern: string): RegExp {
  let source = "";
  for (let at = 0; at < pattern.length; at++) {
    const char = pattern[at]!;
    if (pattern.startsWith("**/", at)) {
      source += "(?:.*/)?";
      at += 2;
    } else if (pattern.startsWith("**", at)) {
      source += ".*";
      at++;
    } else if (char === "*") source += "[^/]*";
    else if (char === "?") source += "[^/]";
    else if (char === "[") {
      const end = pattern.indexOf("]", at + 1);
      if (end < 0) source += "\\[";
      else {
        source += pattern.slice(at, end + 1).replace(/^\[!/, "[^");
        at = end;
      }
    } else if (char === "\\") source += escaped(pattern[++at] ?? "");
    else source += escaped(char);
  }
  return new RegExp(`^${source}$`);
}

const escaped = (char: string): string => char.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&");

function textOf(path: string | undefined): string | undefined {
  try {
    return path === undefined ? undefined : readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}
