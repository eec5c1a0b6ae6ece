/** Which of a layer's whiteouts an overlay needs. Pure. */
import { parentOf } from "./paths.ts";

/** Folders that hide all of what lies below: those marked so, and those that are hidden and made anew, which start empty. */
export function opaqueOf(
  marked: readonly string[],
  whiteouts: readonly string[],
  isFolderHere: (path: string) => boolean,
): Set<string> {
  return new Set([...marked, ...whiteouts].filter(isFolderHere));
}

/**
 * Whiteouts that hide something: not in a folder that hides all, not of a name that the layer has itself, and only where
 * a lower layer has the name. Any other would show as a broken device.
 */
export function neededWhiteouts(
  whiteouts: readonly string[],
  opaque: ReadonlySet<string>,
  isHere: (path: string) => boolean,
  isBelow: (path: string) => boolean,
): string[] {
  const inOpaque = (path: string): boolean => {
    for (let at = parentOf(path);; at = parentOf(at)) {
      if (opaque.has(at)) return true;
      if (at === "") return false;
    }
  };
  return [...new Set(whiteouts)].filter((path) => !isHere(path) && !inOpaque(path) && isBelow(path));
}
