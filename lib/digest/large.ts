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
const LARGE_BYTES = 200 * 1024 * 1024;

/** Files whose length is looked at to estimate that of all. */
const SAMPLES = 1024;

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
  if (bytesOf(tree, files) < largeBytes) return hashTask(tree, { ...options, reader });
  const stop = new AbortController();
  const context = bytesOf(tree, files.filter((path) => path.startsWith("environment/")));
  const hashed = context < largeBytes
    ? undefined
    : beside?.(tree.at("environment"), AbortSignal.any([signal, stop.signal]));
  try {
    for (const path of files) {
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

/** Regular files; none when the tree cannot be walked, which `hashTask` then says. */
function filesOf(tree: TaskTree): string[] {
  try {
    return TASK_FOLDERS.flatMap((folder) => tree.below(folder)).filter(({ kind }) => kind === "file")
      .map(({ path }) => path);
  } catch {
    return [];
  }
}

/** An estimate for many files: it decides about speed, never about a value. */
function bytesOf(tree: TaskTree, files: readonly string[]): number {
  const stride = Math.ceil(files.length / SAMPLES);
  let bytes = 0;
  for (let at = 0; at < files.length; at += stride) {
    bytes += lstatSync(tree.at(files[at]!), { throwIfNoEntry: false })?.size ?? 0;
  }
  return bytes * stride;
}
