/**
 * Blobs by digest, `blobs/sha256/<hex>`, written so that a name is never on bytes which are not its own: beside their
 * place, hashed as they are written, synced, and moved there in one step. Several processes and machines may want the
 * same blob: one fetches it, the others wait; what a dead one left is gone on with.
 */
import { createHash } from "node:crypto";
import {
  closeSync,
  existsSync,
  fstatSync,
  fsyncSync,
  lstatSync,
  mkdirSync,
  openSync,
  readSync,
  renameSync,
  rmSync,
  utimesSync,
  writeSync,
} from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { digestOf } from "../images/digest.ts";
import { errno, HarborError, messageOf } from "../errors.ts";
import { lockFile } from "../files/lock.ts";
import type { Clock } from "../runtime/clock.ts";
import { absentBlob, damaged, unwritableStore } from "./damage.ts";
import { type BlobSource, type BlobSpec, fetchInto, PartialBlob, sync } from "./partial.ts";

export { digestOf };

/** A blob is waited for as long as another process works on it. */
const FETCH_WAIT_MS = 12 * 3_600_000;
const READ_CHUNK = 1 << 20;

export class Blobs {
  constructor(readonly folder: string, readonly readOnly: boolean, private readonly clock: Clock) {}

  path(digest: string): string {
    return join(this.folder, "blobs", "sha256", hexOf(digest));
  }

  has(digest: string): boolean {
    return existsSync(this.path(digest));
  }

  /** Size on disk; undefined when absent. */
  size(digest: string): number | undefined {
    return lstatSync(this.path(digest), { throwIfNoEntry: false })?.size;
  }

  /** A small blob, checked. Throws "image.failed" when it is absent, larger than `maxBytes` or damaged. */
  read(digest: string, maxBytes = 8 * 2 ** 20): Uint8Array {
    const path = this.path(digest);
    let file: number;
    try {
      file = openSync(path, "r");
    } catch (cause) {
      if (errno(cause) === "ENOENT") throw absentBlob(digest, path, cause);
      throw new HarborError("image.failed", `Cannot read the blob ${digest}: ${messageOf(cause)}`, { cause });
    }
    try {
      const { size } = fstatSync(file);
      if (size > maxBytes) {
        throw new HarborError("image.failed", `The blob ${digest} has ${size} bytes, more than a description can have`);
      }
      const bytes = new Uint8Array(size);
      for (let at = 0, got = 1; got > 0 && at < size; at += got) got = readSync(file, bytes, at, size - at, at);
      const found = digestOf(bytes);
      if (found !== digest) throw damaged(digest, found, { path, readOnly: this.readOnly });
      return bytes;
    } finally {
      closeSync(file);
    }
  }

  /** Takes bytes that are all here. Throws "image.failed". */
  put(bytes: Uint8Array): string {
    const digest = digestOf(bytes);
    if (this.size(digest) === bytes.length) return digest;
    try {
      this.#makeFolders();
      const temp = this.#partial(`${hexOf(digest)}.${crypto.randomUUID()}`);
      try {
        writeWhole(temp, bytes);
        renameSync(temp, this.path(digest));
      } finally {
        rmSync(temp, { force: true });
      }
    } catch (cause) {
      throw unwritableStore(`Cannot write ${digest}`, this.folder, cause);
    }
    return digest;
  }

  /** ImageStore.workFolder(). */
  workFolder(): string {
    const folder = this.#partial(`in-${crypto.randomUUID()}`);
    try {
      this.#makeFolders();
      mkdirSync(folder, { mode: 0o700 });
      return folder;
    } catch (cause) {
      throw unwritableStore("Cannot make a folder", this.folder, cause);
    }
  }

  /** ImageStore.adopt(). */
  async adopt(path: string, spec: BlobSpec): Promise<void> {
    if (this.#isHere(spec)) return this.#renew(spec.digest);
    try {
      const file = openSync(path, "r+");
      await sync(file).finally(() => closeSync(file));
      renameSync(path, this.path(spec.digest));
    } catch (cause) {
      throw unwritableStore(`Cannot write ${spec.digest}`, this.folder, cause);
    }
  }

  /** ImageStore.take(). */
  async take(spec: BlobSpec, source: BlobSource, signal: AbortSignal): Promise<void> {
    if (this.#isHere(spec)) return this.#renew(spec.digest);
    try {
      this.#makeFolders();
      const partial = this.#partial(`${hexOf(spec.digest)}.part`);
      using lock = await lockFile(`${partial}.lock`, { clock: this.clock, waitMs: FETCH_WAIT_MS, signal });
      if (this.#isHere(spec)) return;
      const writer = new PartialBlob(partial, spec);
      try {
        await fetchInto(writer, source, AbortSignal.any([signal, lock.lost]));
        await writer.finish(this.path(spec.digest));
      } finally {
        writer.close();
      }
    } catch (cause) {
      if (cause instanceof HarborError || errno(cause) === undefined || signal.aborted) throw cause;
      throw unwritableStore(`Cannot write ${spec.digest}`, this.folder, cause);
    }
  }

  /** A file of the wrong length under a blob's name is none: whoever takes the blob replaces it. */
  #isHere({ digest, size }: BlobSpec): boolean {
    return this.size(digest) === size;
  }

  /** A clean-up leaves alone what was taken lately, also before an image names it. */
  #renew(digest: string): void {
    const now = this.clock.now();
    try {
      utimesSync(this.path(digest), now, now);
    } catch {
      // another user's blob, a read-only disk
    }
  }

  #partial(name: string): string {
    return join(this.folder, PARTIAL, name);
  }

  #makeFolders(): void {
    mkdirSync(join(this.folder, "blobs", "sha256"), { recursive: true });
    mkdirSync(join(this.folder, PARTIAL), { recursive: true });
  }
}

/** Downloads that are under way, and their locks; beside `blobs/`, where other tools expect blobs only. */
export const PARTIAL = ".partial";

function writeWhole(path: string, bytes: Uint8Array): void {
  const file = openSync(path, "wx", 0o644);
  try {
    for (let at = 0; at < bytes.length;) at += writeSync(file, bytes, at, bytes.length - at);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}

/** Digest of a file of any size, read in pieces. Throws the Node error of a file that cannot be read. */
export async function digestOfFile(path: string, signal?: AbortSignal): Promise<string> {
  const hash = createHash("sha256");
  const file = await open(path, "r");
  try {
    const buffer = new Uint8Array(READ_CHUNK);
    for (;;) {
      signal?.throwIfAborted();
      const { bytesRead } = await file.read(buffer, 0, buffer.length);
      if (bytesRead === 0) return `sha256:${hash.digest("hex")}`;
      hash.update(buffer.subarray(0, bytesRead));
    }
  } finally {
    await file.close();
  }
}

/** The hex digits of `sha256:<hex>`; throws for anything else, since the digits become a file name. */
export function hexOf(digest: string): string {
  const hex = /^sha256:([0-9a-f]{64})$/.exec(digest)?.[1];
  if (hex === undefined) {
    throw new HarborError("image.failed", `'${digest}' is not a digest of the form sha256:<64 hex digits>`);
  }
  return hex;
}
