/**
 * Hashing of tasks with hundreds of megabytes. The build context has a hash of its own over the same bytes, so a second
 * process makes that one meanwhile; large files are read in slices between which the event loop turns, so that Ctrl-C
 * is heard.
 */
import { lstatSync } from "node:fs";
import { setImmediate } from "node:timers/promises";
import { FileReader } from "./reader.ts";
import { type HashOptions, hashTask, type TaskHashes } from "./task.ts";
import { TASK_FOLDERS, type TaskTree } from "./tree.ts";

/** Below this a second process costs more than it saves. */
export const LARGE_BYTES = 200 * 1024 * 1024;

/** Shorter files are read when their turn comes. */
const SLICED_BYTES = 16 * 1024 * 1024;

/**
 * Hashes the build context in this folder beside us, to 32 hex digits. Undefined where it cannot: then we do it
 * ourselves and meet the same fault.
 */
export type ContextHasher = (folder: string, signal: AbortSignal) => Promise<string | undefined>;

export interface LargeOptions extends HashOptions {
  signal: AbortSignal;
  beside?: ContextHasher;
  /** For tests. */
  largeBytes?: number;
}

/** As `hashTask`, but lets the event loop turn and uses a second process where it helps. Throws only the abort. */
export async function hashLargeTask(tree: TaskTree, options: LargeOptions): Promise<TaskHashes> {
  const { signal, beside, largeBytes = LARGE_BYTES, reader = new FileReader() } = options;
  const files = filesOf(tree);
  const context = sum(files.filter(({ path }) => path.startsWith("environment/")));
  if (sum(files) < largeBytes) return hashTask(tree, { ...options, reader });
  const stop = new AbortController();
  const hashed = context < largeBytes
    ? undefined
    : beside?.(tree.at("environment"), AbortSignal.any([signal, stop.signal]));
  try {
    for (const { path, bytes } of files) {
      if (bytes < SLICED_BYTES) continue;
      await reader.sumInSlices(tree.at(path), async () => {
        await setImmediate();
        signal.throwIfAborted();
      });
    }
    return hashTask(tree, { ...options, reader, contextHash: await hashed });
  } finally {
    stop.abort();
    await hashed?.catch(() => {});
  }
}

interface Sized {
  path: string;
  bytes: number;
}

const sum = (files: readonly Sized[]): number => files.reduce((total, { bytes }) => total + bytes, 0);

/** Regular files with their sizes; none when the tree cannot be walked, which `hashTask` then says. */
function filesOf(tree: TaskTree): Sized[] {
  try {
    return TASK_FOLDERS.flatMap((folder) => tree.below(folder)).filter(({ kind }) => kind === "file")
      .map(({ path }) => ({ path, bytes: lstatSync(tree.at(path), { throwIfNoEntry: false })?.size ?? 0 }));
  } catch {
    return [];
  }
}
