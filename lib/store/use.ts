/** When an image of a store was used last: the time of a small file beside the blobs, which any user of the store can make. */
import { mkdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { hexOf } from "./blobs.ts";

const USED = ".used";

export const usePath = (folder: string, manifestDigest: string): string => join(folder, USED, hexOf(manifestDigest));

/** Throws the Node error of a folder that cannot be written. */
export function noteUse(folder: string, manifestDigest: string): void {
  mkdirSync(join(folder, USED), { recursive: true });
  writeFileSync(usePath(folder, manifestDigest), "");
}

/** Milliseconds since 1970, or undefined when it was never used. */
export const lastUse = (folder: string, manifestDigest: string): number | undefined =>
  statSync(usePath(folder, manifestDigest), { throwIfNoEntry: false })?.mtimeMs;
