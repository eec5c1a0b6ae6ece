/**
 * Rows in a file, one JSON document a line, that survive a crash (design, invariant 1): a row is appended by one
 * write and a sync, and counts from then on. Half a last line means that its writer died; a reader skips it and an
 * appender cuts it off. One process appends at a time: whoever opens an appender holds the folder's lock.
 */
import { Buffer } from "node:buffer";
import { type FileHandle, open } from "node:fs/promises";
import { HarborError, messageOf } from "../errors.ts";
import { unwritable } from "./unwritable.ts";

const LF = 10;
const CHUNK = 256 * 1024;
/** Longest line that is read, in bytes; beyond it the file is not one of ours. */
const LONGEST_LINE = 512 * 1024 * 1024;

export interface JsonlOptions {
  /** Told what was cut off or skipped. */
  note?: (text: string) => void;
}

export class JsonlAppender implements AsyncDisposable {
  #queue: Promise<unknown> = Promise.resolve();
  #closed = false;

  private constructor(readonly path: string, readonly file: FileHandle, private length: number) {}

  /** Opens or creates `path` and cuts a torn last line off. Throws HarborError "store.unwritable". */
  static async open(path: string, options: JsonlOptions = {}): Promise<JsonlAppender> {
    try {
      const file = await open(path, "a+", 0o644);
      try {
        const { size } = await file.stat();
        const whole = await endOfLastLine(file, size);
        if (whole < size) {
          await file.truncate(whole);
          await file.datasync();
          options.note?.(`${path}: cut off ${size - whole} bytes of a row whose writer died`);
        }
        return new JsonlAppender(path, file, whole);
      } catch (error) {
        await file.close();
        throw error;
      }
    } catch (cause) {
      throw unwritable(`Cannot write ${path}`, cause);
    }
  }

  /**
   * Adds one row; when this settles, the row is on disk. Calls may overlap: rows land in the order of the calls. On a
   * failure (disk full) the file is put back to its last whole row and HarborError "store.unwritable" is thrown.
   */
  append(row: unknown): Promise<void> {
    const line = new TextEncoder().encode(JSON.stringify(row) + "\n");
    const written = this.#queue.then(() => this.#write(line));
    this.#queue = written.catch(() => {});
    return written;
  }

  async #write(line: Uint8Array): Promise<void> {
    if (this.#closed) throw new HarborError("store.unwritable", `Cannot write ${this.path}: it is closed`);
    try {
      let done = 0;
      while (done < line.length) done += (await this.file.write(line, done, line.length - done)).bytesWritten;
      await this.file.datasync();
      this.length += line.length;
    } catch (cause) {
      await this.file.truncate(this.length).catch(() => {}); // else the next open cuts it off
      throw unwritable(`Cannot write ${this.path}`, cause);
    }
  }

  /** Waits for the rows that are under way, then closes. May be called twice. */
  async close(): Promise<void> {
    if (this.#closed) return;
    await this.#queue;
    this.#closed = true;
    await this.file.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

export interface JsonlRow<T> {
  value: T;
  /** 1-based. */
  line: number;
}

export interface ReadOptions<T> extends JsonlOptions {
  /** Turns a line's JSON value into a row; what it throws becomes "store.corrupt". */
  parse?: (value: unknown) => T;
}

/**
 * Yields the rows of `path` one by one, in memory no larger than the longest line. Blank lines are skipped, half a
 * last line too (with a note). Throws HarborError "store.corrupt" naming `file:line` for any other bad line, and the
 * Node error when the file cannot be opened.
 */
export async function* readJsonl<T = unknown>(path: string, options: ReadOptions<T> = {}): AsyncGenerator<JsonlRow<T>> {
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  let line = 0;
  for await (const { bytes, whole } of lines(path)) {
    line++;
    if (!whole) {
      options.note?.(
        `${path}:${line}: skipped half a row (${bytes.length} bytes), its writer died or is still writing`,
      );
      return;
    }
    let value: T;
    try {
      const text = decoder.decode(bytes);
      if (text.trim() === "") continue;
      const json: unknown = JSON.parse(text);
      value = options.parse === undefined ? json as T : options.parse(json);
    } catch (cause) {
      throw corrupt(path, line, messageOf(cause), cause);
    }
    yield { value, line };
  }
}

/** Lines without their LF; the last one has `whole: false` when no LF ends it. */
async function* lines(path: string): AsyncGenerator<{ bytes: Uint8Array; whole: boolean }> {
  const file = await open(path, "r");
  try {
    let rest: Uint8Array[] = [];
    let restLength = 0;
    for (let count = 1;;) {
      const chunk = new Uint8Array(CHUNK);
      const { bytesRead } = await file.read(chunk, 0, CHUNK);
      if (bytesRead === 0) break;
      let from = 0;
      for (let at = chunk.indexOf(LF); at !== -1 && at < bytesRead; at = chunk.indexOf(LF, from)) {
        yield { bytes: join(rest, chunk.subarray(from, at)), whole: true };
        count++;
        rest = [];
        restLength = 0;
        from = at + 1;
      }
      if (from < bytesRead) {
        rest.push(chunk.subarray(from, bytesRead));
        restLength += bytesRead - from;
      }
      if (restLength > LONGEST_LINE) throw corrupt(path, count, `a line of more than ${LONGEST_LINE} bytes`);
    }
    if (restLength > 0) yield { bytes: join(rest, new Uint8Array()), whole: false };
  } finally {
    await file.close();
  }
}

function join(parts: Uint8Array[], last: Uint8Array): Uint8Array {
  return parts.length === 0 ? last : Buffer.concat([...parts, last]);
}

/** Offset right after the last LF, read backwards. */
async function endOfLastLine(file: FileHandle, size: number): Promise<number> {
  const chunk = Buffer.alloc(Math.min(CHUNK, size));
  for (let end = size; end > 0;) {
    const start = Math.max(0, end - chunk.length);
    const { bytesRead } = await file.read(chunk, 0, end - start, start);
    const at = chunk.subarray(0, bytesRead).lastIndexOf(LF);
    if (at !== -1) return start + at + 1;
    end = start;
  }
  return 0;
}

function corrupt(path: string, line: number, why: string, cause?: unknown): HarborError {
  return new HarborError("store.corrupt", `${path}:${line} is not a row we wrote: ${why}`, {
    cause,
    hint: "repair or remove that line, or start afresh without --resume",
    details: { path, line },
  });
}
