/**
 * Files that a Compose file names: only what lies in the task's own folder, reached without a link, so that a task reads
 * nothing else of this machine. Looks at the disk, changes nothing.
 */
import { isAbsolute, join, relative, resolve } from "node:path";
import { errno } from "../errors.ts";
import { reasonOf } from "../files/reason.ts";
import { type Kind, statKind } from "../files/tree.ts";

export interface Place {
  /** Absolute. */
  path: string;
  /** Undefined when nothing is there. */
  kind: "file" | "dir" | undefined;
}

/** `written` below `base` inside `fence` (both absolute), or what is wrong with it. `fenceName` is how messages call it. */
export function placeInside(written: string, base: string, fence: string, fenceName: string): Place | string {
  // An absolute path below `base` came from CONTEXT_DIR; messages do not tell where the dataset lies.
  const shown = written.startsWith(`${base}/`) ? written.slice(base.length + 1) : written;
  if (written.startsWith("~")) return `'${shown}' lies in a home folder, must lie in ${fenceName}`;
  const path = resolve(base, written);
  const inside = relative(fence, path);
  if (inside === ".." || inside.startsWith("../") || isAbsolute(inside)) {
    return `'${shown}' lies outside of ${fenceName}`;
  }
  let at = fence;
  for (const part of ["", ...inside.split("/")]) {
    at = join(at, part);
    const kind = look(at);
    if (kind instanceof Error) return `'${shown}' cannot be looked at: ${reasonOf(kind)}`;
    if (kind === "link") return `'${shown}' leads over the link ${relative(fence, at) || "."}`;
    if (kind === "other") return `'${shown}' is neither file nor folder`;
    if (kind === undefined) return { path, kind: undefined };
    if (at !== path && kind === "file") return `'${shown}' goes on below a file`;
  }
  return { path, kind: look(path) as "file" | "dir" };
}

/** What lies there, or why that cannot be told (a name that is too long, a folder that may not be searched). */
function look(path: string): Kind | undefined | Error {
  try {
    return statKind(path);
  } catch (error) {
    if (errno(error) === undefined) throw error;
    return error as Error;
  }
}
