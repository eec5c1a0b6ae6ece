/**
 * Lines on their way out of this process. Everything that was queued is written by fs.write off the main thread: a
 * reader that stalls (`| less`) costs memory for what is queued, never a deadline; a reader that left (`| head`) ends
 * our output, not our work; a pipe that somebody made non-blocking is waited for. `process.stdout` is not used: Bun
 * 1.4.5 cuts what it holds at process.exit(), and making it costs 4 ms of every start.
 */
import { Buffer } from "node:buffer";
import { fstatSync, write } from "node:fs";
import { errno, messageOf } from "../errors.ts";

const RETRY_MS = 5;

export class LineWriter {
  #queued: string[] = [];
  #draining: Promise<void> | undefined;
  #ended = false;
  #fault: string | undefined;

  constructor(private readonly fd: number) {}

  /** Why lines were lost although somebody wanted them (a full disk); undefined when none were. */
  get fault(): string | undefined {
    return this.#fault;
  }

  /** Queues `text`; returns at once. */
  write(text: string): void {
    if (this.#ended) return;
    this.#queued.push(text);
    this.#draining ??= this.#drain();
  }

  /** Resolves when all that was queued has left, or cannot leave any more. */
  async flush(): Promise<void> {
    while (this.#draining !== undefined) await this.#draining;
  }

  async #drain(): Promise<void> {
    await Promise.resolve(); // lines of one turn leave in one write
    while (this.#queued.length > 0) {
      const bytes = Buffer.from(this.#queued.splice(0).join(""));
      const error = await writeAll(this.fd, bytes);
      if (error === undefined) continue;
      this.#ended = true;
      this.#queued = [];
      if (errno(error) !== "EPIPE" && errno(error) !== "EBADF") this.#fault = messageOf(error);
    }
    this.#draining = undefined;
  }
}

/** Writers for stdout and stderr; one for both where both are the same file, so that their lines keep their order. */
export function standardOutputs(): { out: LineWriter; err: LineWriter } {
  const out = new LineWriter(1);
  return { out, err: identity(1) === identity(2) ? out : new LineWriter(2) };
}

function identity(fd: number): string {
  try {
    const { dev, ino } = fstatSync(fd);
    return `${dev}:${ino}`;
  } catch {
    return `fd ${fd}`;
  }
}

/** Undefined when all bytes left, else the error that stopped them: EPIPE when the reader is gone. */
async function writeAll(fd: number, bytes: Buffer): Promise<unknown> {
  for (let at = 0; at < bytes.length;) {
    const { error, written } = await new Promise<{ error: unknown; written: number }>((resolve) => {
      write(fd, bytes, at, bytes.length - at, null, (error, written) => resolve({ error, written }));
    });
    if (error === null || error === undefined) at += written;
    else if (errno(error) === "EAGAIN") await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    else if (errno(error) !== "EINTR") return error;
  }
}
