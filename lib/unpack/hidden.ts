/** Which names of an image's lower layers an overlay shows: what a whiteout above them may hide. */
import { lstatSync } from "node:fs";
import { bytesOfPath, parentOf, systemPath } from "./paths.ts";

/** An unpacked layer. */
export interface LowerTree {
  /** Absolute. */
  folder: string;
  /** Folders that hide all of what is below, as byte strings. */
  opaque: string[];
}

/** Answers for a name (a byte string) whether the trees, topmost first, show something there. */
export function shownIn(trees: readonly LowerTree[]): (path: string) => boolean {
  const layers = trees.map(({ folder, opaque }) => ({ folder: bytesOfPath(folder), opaque: new Set(opaque) }));
  const cached = new Map<string, boolean>();
  const look = (path: string): boolean => {
    for (const { folder, opaque } of layers) {
      const found = lstatSync(systemPath(`${folder}/${path}`) as string, { throwIfNoEntry: false });
      if (found !== undefined) return !(found.isCharacterDevice() && found.rdev === 0);
      if (hides(folder, opaque, path)) return false;
    }
    return false;
  };
  return (path) => {
    const known = cached.get(path);
    if (known !== undefined) return known;
    const answer = look(path);
    cached.set(path, answer);
    return answer;
  };
}

/** Whether this layer keeps what lies under the name in lower ones from being seen: a folder above it is opaque, or none. */
function hides(folder: string, opaque: ReadonlySet<string>, path: string): boolean {
  for (let at = path; at !== "";) {
    at = parentOf(at);
    if (opaque.has(at)) return true;
    if (at === "") return false;
    const found = lstatSync(systemPath(`${folder}/${at}`) as string, { throwIfNoEntry: false });
    if (found !== undefined && !found.isDirectory()) return true;
  }
  return false;
}
