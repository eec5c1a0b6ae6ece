/**
 * Files copied and hashed in one pass: the sum of a file in SHA256SUMS is of the bytes that were written, and a source
 * that rots on its disk is found out instead of carried on. A copy that is there already, with those very bytes, stays.
 */
import { createHash } from "node:crypto";
import {
  chmodSync,
  closeSync,
  fstatSync,
  lstatSync,
  mkdirSync,
  openSync,
  readlinkSync,
  readSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeSync,
} from "node:fs";
import { setImmediate } from "node:timers/promises";
import { errno, HarborError, isDiskFull } from "../errors.ts";
import { reasonOf } from "../files/reason.ts";

const CHUNK = 1 << 20;
/** Bytes between two looks at the event loop: Ctrl-C arrives, progress leaves. */
const PAUSE_BYTES = 16 << 20;
/** What a copy is written under until it is whole. */
const PART = ".part";

export interface Progress {
  signal: AbortSignal;
  /** Told how many bytes have passed since the last time. */
  passed(bytes: number): void;
}

/** For what is too little to tell. */
export const silent = (signal: AbortSignal): Progress => ({ signal, passed: () => {} });

/** SHA-256 of a file, hex. Throws the Node error of what cannot be read, and the abort. */
export async function hashFile(path: string, progress: Progress): Promise<string> {
  const file = openSync(path, "r");
  try {
    return await pump(file, undefined, progress);
  } finally {
    closeSync(file);
  }
}

export interface CopyOptions extends Progress {
  mode: number;
  /** SHA-256 that the bytes must have, hex. */
  expected?: string;
}

/**
 * Copies a regular file under a temporary name and moves it to `to`, whatever stands there; returns its SHA-256, hex.
 * Throws HarborError "image.failed" when the bytes are not the expected ones, and the Node error of the step that failed.
 */
export async function copyFile(from: string, to: string, options: CopyOptions): Promise<string> {
  const file = openSync(from, "r");
  try {
    const kept = await alreadyThere(file, to, options);
    if (kept !== undefined) return kept;
    const temp = `${to}${PART}`;
    removeAnything(temp);
    const target = openSync(temp, "wx", 0o600);
    let sum: string;
    try {
      sum = await pump(file, target, options);
    } finally {
      closeSync(target);
    }
    if (options.expected !== undefined && sum !== options.expected) {
      removeAnything(temp);
      throw damagedSource(from, options.expected, sum);
    }
    chmodSync(temp, options.mode);
    replace(temp, to);
    return sum;
  } finally {
    closeSync(file);
  }
}

/** The sum of `to` when it is the copy that is wanted; its mode is put right. */
async function alreadyThere(file: number, to: string, options: CopyOptions): Promise<string | undefined> {
  const found = lstatSync(to, { throwIfNoEntry: false });
  if (found === undefined || !found.isFile() || found.size !== fstatSync(file).size) return undefined;
  const sum = await hashFile(to, options);
  if (sum !== (options.expected ?? await pump(file, undefined, silent(options.signal)))) return undefined;
  if ((found.mode & 0o7777) !== options.mode) chmodSync(to, options.mode);
  return sum;
}

/** The whole of `file`, to `target` when there is one. */
async function pump(file: number, target: number | undefined, { signal, passed }: Progress): Promise<string> {
  const chunk = sharedBuffer();
  const hash = createHash("sha256");
  let since = 0;
  for (let at = 0, got = -1; got !== 0; at += got) {
    got = readSync(file, chunk, 0, chunk.length, at);
    const part = chunk.subarray(0, got);
    hash.update(part);
    if (target !== undefined) { for (let put = 0; put < got;) put += writeSync(target, part, put, got - put); }
    since += got;
    if (since < PAUSE_BYTES) continue;
    passed(since);
    since = 0;
    await setImmediate();
    signal.throwIfAborted();
  }
  passed(since);
  return hash.digest("hex");
}

let buffer: Uint8Array | undefined;
/** Never held over an await. */
const sharedBuffer = (): Uint8Array => buffer ??= new Uint8Array(CHUNK);

const damagedSource = (path: string, wanted: string, found: string): HarborError =>
  new HarborError("image.failed", `${path} is damaged: its bytes are sha256:${found}, must be sha256:${wanted}`, {
    hint: "remove it and fetch the image again",
    details: { path, wanted, found },
  });

function replace(temp: string, to: string): void {
  try {
    renameSync(temp, to);
  } catch (error) {
    if (!["EISDIR", "ENOTEMPTY", "EEXIST"].includes(errno(error) ?? "")) throw error;
    removeAnything(to);
    renameSync(temp, to);
  }
}

/** Makes the symbolic link `to`; one that leads to the same stays. */
export function copyLink(target: string, to: string): void {
  if (lstatSync(to, { throwIfNoEntry: false })?.isSymbolicLink() && readlinkSync(to) === target) return;
  removeAnything(to);
  symlinkSync(target, to);
}

/** Makes the folder `to` and those above it, whatever stands there. */
export function makeFolder(to: string, mode: number): void {
  const found = lstatSync(to, { throwIfNoEntry: false });
  if (found !== undefined && !found.isDirectory()) removeAnything(to);
  mkdirSync(to, { recursive: true });
  if ((lstatSync(to).mode & 0o7777) !== mode) chmodSync(to, mode);
}

const removeAnything = (path: string): void => rmSync(path, { recursive: true, force: true });

/** HarborError "store.unwritable" for a full disk and a Node error of writing into a bundle folder; any other passes. */
export function unwritableBundle(folder: string, cause: unknown): unknown {
  const full = isDiskFull(cause);
  if (!full && (cause instanceof HarborError || errno(cause) === undefined)) return cause;
  const why = full ? "no space left on the disk" : reasonOf(cause);
  return new HarborError("store.unwritable", `Cannot write the bundle ${folder}: ${why}`, {
    cause,
    hint: full
      ? "free some space, then run the same export again: it goes on"
      : "make the folder writable, or name another one with --out",
  });
}
