/**
 * Blobs by digest, `blobs/sha256/<hex>`, written so that a name is never on bytes which are not its own: beside their
 * place, hashed as they are written, synced, and moved there in one step. Several processes and machines may want the
 * same blob: one fetches it, the others wait; what a dead one left is gone on with.
 */
import { createHash, type Hash } from "node:crypto";
import {
  closeSync,
  existsSync,
  fstatSync,
  fsync,
  fsyncSync,
  ftruncateSync,
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
import { promisify } from "node:util";
import { digestOf } from "../images/digest.ts";
import { errno, HarborError, messageOf } from "../errors.ts";
import { lockFile } from "../files/lock.ts";
import type { Clock } from "../runtime/clock.ts";
import { absentBlob, damaged, unwritableStore } from "./damage.ts";

export { digestOf };

/** A blob is waited for as long as another process works on it. */
const FETCH_WAIT_MS = 12 * 3_600_000;
/** How often one source may break off after it brought something new. */
const RESUMES = 5;
const READ_CHUNK = 1 << 20;

export interface BlobSpec {
  digest: string;
  size: number;
}

export type BlobSource = (offset: number) => Promise<AsyncIterable<Uint8Array>>;

/** Off this thread: other layers go on arriving meanwhile. */
const sync = promisify(fsync);

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

/**
 * Asks the source from where we are until all is there. A source that breaks off is asked again while it makes progress;
 * a HarborError of its own, a wrong digest or no progress ends it.
 */
async function fetchInto(writer: PartialBlob, source: BlobSource, signal: AbortSignal): Promise<void> {
  for (let resumes = 0, restarted = false;;) {
    const from = writer.length;
    let broke: unknown;
    if (from < writer.spec.size || writer.spec.size === 0) {
      try {
        for await (const chunk of await source(from)) {
          signal.throwIfAborted();
          writer.write(chunk);
        }
      } catch (error) {
        if (error instanceof HarborError || signal.aborted || writer.failed) throw error;
        broke = error;
      }
    }
    if (writer.length >= writer.spec.size) {
      const wrong = writer.wrong();
      if (wrong === undefined) return;
      writer.restart();
      if (from === 0 || restarted) throw wrong;
      restarted = true; // what was gone on with may have been another's half: once more from the beginning
      continue;
    }
    if (writer.length === from || ++resumes > RESUMES) throw writer.cutOff(broke);
  }
}

/** The file of a blob that is not whole yet, with the hash of what it holds. */
class PartialBlob {
  #file: number;
  #hash: Hash;
  length = 0;
  /** Whether this disk, not the source, was the trouble. */
  failed = false;

  constructor(readonly path: string, readonly spec: BlobSpec) {
    this.#file = openSync(path, "a+", 0o644);
    this.#hash = createHash("sha256");
    let { size } = fstatSync(this.#file);
    if (size > spec.size) {
      this.restart();
      size = 0;
    }
    const buffer = new Uint8Array(Math.min(READ_CHUNK, size));
    while (this.length < size) {
      const got = readSync(this.#file, buffer, 0, buffer.length, this.length);
      if (got === 0) break;
      this.#hash.update(buffer.subarray(0, got));
      this.length += got;
    }
  }

  write(chunk: Uint8Array): void {
    const { digest, size } = this.spec;
    if (this.length + chunk.length > size) {
      this.restart();
      throw new HarborError(
        "image.failed",
        `Cannot take ${digest}: more came than the ${size} bytes that were announced`,
      );
    }
    try {
      for (let at = 0; at < chunk.length;) at += writeSync(this.#file, chunk, at, chunk.length - at);
    } catch (error) {
      this.failed = true;
      throw error;
    }
    this.#hash.update(chunk);
    this.length += chunk.length;
  }

  wrong(): HarborError | undefined {
    const found = `sha256:${this.#hash.copy().digest("hex")}`;
    if (found === this.spec.digest) return undefined;
    return new HarborError("image.failed", `Cannot take ${this.spec.digest}: what came has the digest ${found}`, {
      details: { wanted: this.spec.digest, found },
    });
  }

  cutOff(cause: unknown): HarborError {
    const { digest, size } = this.spec;
    const why = cause === undefined ? "" : `: ${messageOf(cause)}`;
    return new HarborError(
      "image.failed",
      `Cannot take ${digest}: it ended after ${this.length} of ${size} bytes${why}`,
      {
        cause,
        hint: "try again: what has come is kept, the rest will be fetched",
        details: { digest, size, length: this.length },
      },
    );
  }

  restart(): void {
    ftruncateSync(this.#file, 0);
    this.#hash = createHash("sha256");
    this.length = 0;
  }

  async finish(place: string): Promise<void> {
    await sync(this.#file);
    renameSync(this.path, place);
  }

  close(): void {
    closeSync(this.#file);
  }
}

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
