/** A Context that records what a command prints; effects are fakes or the real ones, as the test chooses. */
import type { Context } from "../../lib/context.ts";
import { HarborError } from "../../lib/errors.ts";
import { type Clock, systemClock } from "../../lib/runtime/clock.ts";
import type { Runner } from "../../lib/runtime/runner.ts";

export interface TestContext {
  ctx: Context;
  /** Lines printed on stdout and on stderr. */
  out: string[];
  notes: string[];
  /** What a first Ctrl-C does. */
  interrupt(): void;
  /** What a second one does. */
  interruptAgain(): void;
}

/** Every effect that is not given refuses to be used, save the clock. */
export function testContext(given: {
  runner?: Runner;
  clock?: Clock;
  env?: Record<string, string>;
  cwd?: string;
} = {}): TestContext {
  const out: string[] = [];
  const notes: string[] = [];
  const abort = new AbortController();
  const undos = new Set<() => void>();
  const ctx: Context = {
    runner: given.runner ?? noRunner,
    clock: given.clock ?? systemClock,
    env: given.env ?? {},
    cwd: given.cwd ?? "/nowhere",
    out: (line) => void out.push(line),
    note: (line) => void notes.push(line),
    draw: () => {},
    terminal: { live: false, columns: 80 },
    signal: abort.signal,
    onSecondSignal: (undo) => (undos.add(undo), () => undos.delete(undo)),
  };
  return {
    ctx,
    out,
    notes,
    interrupt: () => abort.abort(new HarborError("aborted", "interrupted by SIGINT")),
    interruptAgain: () => undos.forEach((undo) => undo()),
  };
}

const noRunner: Runner = {
  run: (argv) => Promise.reject(new Error(`no program is expected to run here: ${argv.join(" ")}`)),
  start: (argv) => Promise.reject(new Error(`no program is expected to start here: ${argv.join(" ")}`)),
};
