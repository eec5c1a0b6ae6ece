/**
 * A blob on its way: what has come so far and its hash, gone on with by whoever wants the blob next. Nothing of it has
 * the blob's name before it is whole and its digest is right.
 */
import { createHash, type Hash } from "node:crypto";
import { closeSync, fstatSync, fsync, ftruncateSync, openSync, readSync, renameSync, writeSync } from "node:fs";
import { promisify } from "node:util";
import { HarborError, messageOf } from "../errors.ts";

export interface BlobSpec {
  digest: string;
  size: number;
}

export type BlobSource = (offset: number) => Promise<AsyncIterable<Uint8Array>>;

/** How often one source may break off after it brought something new. */
const RESUMES = 5;
const READ_CHUNK = 1 << 20;

/** Off this thread: other layers go on arriving meanwhile. */
export const sync = promisify(fsync);

/**
 * Asks the source from where we are until all is there. A source that breaks off is asked again while it makes progress;
 * a HarborError of its own, a wrong digest or no progress ends it.
 */
export async function fetchInto(writer: PartialBlob, source: BlobSource, signal: AbortSignal): Promise<void> {
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
export class PartialBlob {
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
