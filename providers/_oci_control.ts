/**
 * The line to a sandbox: the attached client of its `run`, whose stdin and stdout belong to a shell of ours inside.
 * A request costs half a millisecond where an engine's exec costs a tenth of a second; it needs no new process, so it
 * works with a full process table; and no process of the task ever holds these pipes, so what comes back is ours.
 * When the line ends the sandbox has ended, and when we end the line ends.
 */
import type { Clock } from "../lib/runtime/clock.ts";
import type { Started } from "../lib/runtime/runner.ts";
import { HeadTail } from "../lib/runtime/head_tail.ts";
import { MarkerStream, newSecret } from "./_oci_markers.ts";
import { oneLine } from "./_oci_scripts.ts";

/** The line is gone: the sandbox ended. The sandbox turns it into "sandbox.lost" with evidence. */
export class LineEnded extends Error {
  override readonly name = "LineEnded";
}

/** A request was not answered in time: the control shell is stopped or busy. */
export class LineStuck extends Error {
  override readonly name = "LineStuck";
}

export interface Listener {
  /** A marker of this request; its number is taken off. */
  onMarker(words: string[]): void;
  onData?(chunk: Uint8Array): void;
}

export class Control {
  readonly #secret = newSecret();
  readonly #errors = new HeadTail(16 * 1024);
  #count = 0;
  #queue: Promise<unknown> = Promise.resolve();
  #listener: Listener | undefined;
  #finish: ((error?: Error) => void) | undefined;
  #last = "";
  #ended = false;
  #stuck = false;
  /** Resolves when the client has ended, with its exit code. */
  readonly ended: Promise<number>;

  constructor(private readonly client: Started, private readonly clock: Clock) {
    const markers = new MarkerStream(
      this.#secret,
      (chunk) => this.#listener?.onData?.(chunk),
      (words) => this.#marker(words),
    );
    client.stdout.on("data", (chunk) => markers.push(chunk));
    client.stderr.on("data", (chunk) => this.#errors.push(chunk));
    client.stdin.on("error", () => {}); // EPIPE: `ended` tells
    client.stdin.write(`${this.#secret}\n`);
    this.ended = client.ended.then(({ exitCode }) => {
      this.#ended = true;
      this.#finish?.(new LineEnded("the sandbox ended"));
      return exitCode;
    });
  }

  /** What the client and our own shell wrote to stderr. */
  get errors(): string {
    return this.#errors.text();
  }

  /** Whether the client has ended. */
  get over(): boolean {
    return this.#ended;
  }

  get usable(): boolean {
    return !this.#ended && !this.#stuck;
  }

  /**
   * Sends one request and waits for its `last` marker. Requests wait for one another. `script` gets the number that its
   * markers carry. Rejects with LineEnded, LineStuck after `deadlineMs`, or the signal's reason; after the last two
   * the line is out of step and refuses further requests.
   */
  ask(
    script: (n: number) => string,
    last: string,
    listener: Listener,
    deadlineMs: number,
    signal?: AbortSignal,
  ): Promise<void> {
    const deadline = this.clock.ticks() + deadlineMs;
    const turn = this.#queue.then(() => {
      const leftMs = deadline - this.clock.ticks();
      if (leftMs <= 0) throw new LineStuck("the sandbox is busy");
      return this.#ask(script, last, listener, leftMs, signal);
    });
    this.#queue = turn.catch(() => {});
    return this.#within(turn, deadlineMs);
  }

  #ask(
    script: (n: number) => string,
    last: string,
    listener: Listener,
    deadlineMs: number,
    signal?: AbortSignal,
  ): Promise<void> {
    if (this.#ended) return Promise.reject(new LineEnded("the sandbox ended"));
    if (this.#stuck) return Promise.reject(new LineStuck("the sandbox does not answer"));
    return new Promise((resolve, reject) => {
      const leave = (error: unknown) => {
        this.#stuck = true;
        finish(error);
      };
      const timer = this.clock.after(deadlineMs, () => leave(new LineStuck("the sandbox does not answer")));
      const onAbort = () => leave(signal!.reason);
      const finish = (error?: unknown) => {
        timer[Symbol.dispose]();
        signal?.removeEventListener("abort", onAbort);
        this.#listener = this.#finish = undefined;
        if (error === undefined) resolve();
        else reject(error);
      };
      if (signal?.aborted) return onAbort();
      signal?.addEventListener("abort", onAbort, { once: true });
      this.#listener = listener;
      this.#finish = finish;
      const n = this.#count++;
      this.#last = `${n} ${last}`;
      this.client.stdin.write(`${oneLine(script(n))}\n`);
    });
  }

  /** Requests wait in line; one that has waited too long answers without its turn. */
  #within<T>(turn: Promise<T>, ms: number): Promise<T> {
    return new Promise((resolve, reject) => {
      const timer = this.clock.after(ms + 50, () => reject(new LineStuck("the sandbox does not answer")));
      turn.then(resolve, reject).finally(() => timer[Symbol.dispose]());
    });
  }

  #marker(words: string[]): void {
    const [n, verb] = words;
    this.#listener?.onMarker(words.slice(1));
    if (`${n} ${verb}` === this.#last) this.#finish?.();
  }

  /** Lets the sandbox live on without us: its shell becomes a plain wait. */
  letGo(seconds: number): void {
    if (this.usable) this.client.stdin.write(`exec sleep ${seconds} </dev/null >/dev/null 2>&1\n`);
  }

  /** Ends the line. Not for a sandbox that was let go: leave() does not touch what runs inside. */
  close(): void {
    this.client.stdin.end();
  }

  leave(): void {
    this.client.kill("SIGKILL");
  }

  pause(): void {
    this.client.stdout.pause();
  }

  resume(): void {
    this.client.stdout.resume();
  }
}
