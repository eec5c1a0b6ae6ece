/**
 * Images as the single file that apptainer (.sif) and enroot (.sqsh) start from: made once on this machine out of our
 * store's layers, by one process, and there whole or not at all. Shared and read-only afterwards.
 */
import { createHash } from "node:crypto";
import { existsSync, lstatSync, mkdirSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { HarborError, messageOf } from "../lib/errors.ts";
import { lockFile } from "../lib/files/lock.ts";
import type { Clock } from "../lib/runtime/clock.ts";
import type { Runner } from "../lib/runtime/runner.ts";
import { removeWhole } from "../lib/sandbox/scratch.ts";
import type { ImageStore, StoredImage } from "../lib/store/store.ts";
import { unpackFlat } from "../lib/unpack/layer.ts";

export interface FileImageDeps {
  runner: Runner;
  clock: Clock;
  /** Where the files are kept. */
  cache: string;
  /** Folder on a local disk for what is on its way. */
  scratch: string;
}

/** Another process may be at work on a large image. */
const WAIT_MS = 1_800_000;

/** Name of an image's file: by what is in it, so that a moved tag is another file. */
const fileNameOf = (identity: string, suffix: string): string =>
  `${createHash("sha256").update(identity).digest("hex").slice(0, 16)}.${suffix}`;

/**
 * The file for `identity`, made by `make` beside its place when it is not there. Throws "machine.lacks" for a cache that
 * cannot be written, and what `make` throws.
 */
export async function imageFile(
  identity: string,
  suffix: string,
  make: (to: string) => Promise<void>,
  { clock, cache }: FileImageDeps,
  signal: AbortSignal,
): Promise<string> {
  const path = join(cache, fileNameOf(identity, suffix));
  if (isWhole(path)) return path;
  try {
    mkdirSync(cache, { recursive: true, mode: 0o700 });
  } catch (cause) {
    throw new HarborError("machine.lacks", `Cannot keep images in ${cache}: ${messageOf(cause)}`, {
      cause,
      hint: "set XDG_CACHE_HOME to a folder that you may write",
    });
  }
  using _lock = await lockFile(`${path}.lock`, { clock, waitMs: WAIT_MS, signal });
  if (isWhole(path)) return path;
  const temp = `${path}.${crypto.randomUUID().slice(0, 8)}.tmp`;
  try {
    await make(temp);
    renameSync(temp, path);
    return path;
  } finally {
    rmSync(temp, { force: true });
  }
}

/** A regular file of ours with something in it: whoever else may write the cache must not choose what we start. */
function isWhole(path: string): boolean {
  const found = lstatSync(path, { throwIfNoEntry: false });
  const ours = process.getuid?.();
  return found !== undefined && found.isFile() && found.size > 0 && (found.uid === ours || found.uid === 0);
}

/** Unpacks all layers of an image into one folder, lends it to `use` and removes it. */
export async function withTree<T>(
  image: StoredImage,
  store: ImageStore,
  use: (tree: string) => Promise<T>,
  { runner, scratch }: FileImageDeps,
  signal: AbortSignal,
): Promise<T> {
  mkdirSync(scratch, { recursive: true, mode: 0o700 });
  const folder = mkdtempSync(join(scratch, "tree-"));
  const tree = join(folder, "root");
  mkdirSync(tree, { mode: 0o755 });
  const uid = process.getuid?.() ?? 0;
  const owners = uid === 0 ? { kind: "shift" as const, start: 0 } : { kind: "single" as const, uid };
  const layers = image.layers.map((layer) => ({
    ...layer,
    path: store.blobPath(layer.digest),
    readOnly: store.readOnly,
  }));
  try {
    await unpackFlat(layers, tree, { owners, runner }, signal);
    return await use(tree);
  } finally {
    removeWhole(folder);
  }
}

/** A file that a task names instead of an image: `/images/x.sif`. */
export function namedFile(reference: string, suffix: string): string | undefined {
  if (!reference.startsWith("/") || !reference.endsWith(`.${suffix}`)) return undefined;
  if (existsSync(reference)) return reference;
  throw new HarborError("image.failed", `Image ${reference} is not there`);
}
