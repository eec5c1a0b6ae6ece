/**
 * The effects a command may have, in one bag: programs, time, environment, the two output streams, cancellation.
 * Code below `cmd/` takes only the members it needs; tests build one with `tests/support/context.ts`.
 */
import type { Clock } from "./runtime/clock.ts";
import type { Runner } from "./runtime/runner.ts";

export interface Terminal {
  /** Whether the stream is a terminal a person looks at (not a pipe, not TERM=dumb, not CI). */
  readonly live: boolean;
  /** Columns of the terminal; 80 where unknown. */
  readonly columns: number;
}

export interface Context {
  readonly runner: Runner;
  readonly clock: Clock;
  /** The environment as the program got it. Never mutated. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Working directory, absolute. */
  readonly cwd: string;
  /** One line of result on stdout. Queued, so a slow reader never holds up the work; silent when the reader is gone. */
  out(line: string): void;
  /** One line of progress or notes on stderr; control characters are shown, not sent. */
  note(line: string): void;
  /** Raw bytes to stderr for the live screen; a no-op when `terminal.live` is false. */
  draw(text: string): void;
  readonly terminal: Terminal;
  /** Aborted by the first SIGINT or SIGTERM; `signal.reason` is a HarborError with code "aborted". */
  readonly signal: AbortSignal;
  /** Runs `undo` synchronously when a second signal ends the program at once. Returns a function that forgets it. */
  onSecondSignal(undo: () => void): () => void;
}
