/** A program whose output is read as it comes: it ends with whoever reads it, and its last words are kept. */
import type { Readable } from "node:stream";
import { HeadTail } from "./head_tail.ts";
import type { Runner, RunOptions, Started } from "./runner.ts";

/** Of standard error, head and tail. */
const KEPT_BYTES = 16 * 1024;

export class Producer implements Disposable {
  readonly #said = new HeadTail(KEPT_BYTES);

  private constructor(private readonly program: Started, private readonly signal: AbortSignal) {
    program.stderr.on("data", (chunk: Uint8Array) => this.#said.push(chunk));
    program.stdin.end();
    signal.addEventListener("abort", this.kill, { once: true });
    if (signal.aborted) this.kill();
  }

  /** Throws HarborError "machine.lacks" when the program cannot be started. */
  static async start(
    runner: Runner,
    argv: readonly string[],
    signal: AbortSignal,
    options: Pick<RunOptions, "cwd" | "env"> = {},
  ): Promise<Producer> {
    return new Producer(await runner.start(argv, options), signal);
  }

  get stdout(): Readable {
    return this.program.stdout;
  }

  get ended(): Started["ended"] {
    return this.program.ended;
  }

  get exited(): Started["exited"] {
    return this.program.exited;
  }

  /** What it said on standard error. */
  get said(): string {
    return this.#said.text();
  }

  readonly kill = (): void => this.program.kill("SIGKILL");

  /** Ends it, should it still run. */
  [Symbol.dispose](): void {
    this.kill();
    this.signal.removeEventListener("abort", this.kill);
  }
}
