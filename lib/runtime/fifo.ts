/**
 * Reads a named pipe without holding a thread: node's file streams block one worker per read, and four blocked workers
 * stop every file operation of the process. Bun reads it through its event loop; elsewhere a `cat` stands between.
 */
import { spawn } from "node:child_process";
import * as fs from "node:fs";
import { runtimeName } from "./self.ts";

export interface FifoReader {
  /** Resolves when every writer has closed (at least one having opened), or after close(). Never rejects. */
  readonly ended: Promise<void>;
  /** Stops reading. A writer then gets EPIPE. */
  close(): void;
}

interface BunLike {
  file(fd: number): { stream(): ReadableStream<Uint8Array> };
}

/** Opens the pipe for reading at once, whether or not somebody writes yet; each chunk goes to `onData`. */
export function readFifo(path: string, onData: (chunk: Uint8Array) => void): FifoReader {
  return runtimeName === "bun" ? throughBun(path, onData) : throughCat(path, onData);
}

function throughBun(path: string, onData: (chunk: Uint8Array) => void): FifoReader {
  const { O_RDONLY, O_NONBLOCK, O_NOFOLLOW } = fs.constants;
  const fd = fs.openSync(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
  const reader = (globalThis as unknown as { Bun: BunLike }).Bun.file(fd).stream().getReader();
  const ended = (async () => {
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        onData(value);
      }
    } catch {
      // closed by us
    } finally {
      fs.closeSync(fd); // Bun leaves a descriptor it was handed to its owner (1.4.5)
    }
  })();
  return { ended, close: () => void reader.cancel().catch(() => {}) };
}

function throughCat(path: string, onData: (chunk: Uint8Array) => void): FifoReader {
  // Opening a pipe that nobody writes to waits for ever: our end must be its end.
  const child = spawn("setpriv", ["--pdeathsig", "KILL", "cat", path], {
    stdio: ["ignore", "pipe", "ignore"],
    detached: true,
  });
  child.stdout.on("data", onData);
  const ended = new Promise<void>((resolve) => {
    child.on("close", () => resolve());
    child.on("error", () => resolve());
  });
  return { ended, close: () => void child.kill("SIGKILL") };
}
