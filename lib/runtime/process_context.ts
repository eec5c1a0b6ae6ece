/**
 * The real Context: this process's streams, signals, environment and clock.
 *
 * Lines go out with back-pressure and errors of a closed pipe are swallowed: a reader that left (`| head`) ends our
 * output, not our work. The first SIGINT or SIGTERM aborts `signal`; the second runs what registered itself with
 * onSecondSignal() and leaves at once.
 */
import process from "node:process";
import { HarborError } from "../errors.ts";
import type { Context } from "../context.ts";
import { systemClock } from "./clock.ts";
import { systemRunner } from "./runner.ts";

export interface ProcessContext {
  ctx: Context;
  /** Which signal came first, if any: its exit code. */
  interruptedExit(): number | undefined;
  /** Waits until everything printed has left this process. */
  flush(): Promise<void>;
}

export function processContext(options: { trace?: (line: string) => void } = {}): ProcessContext {
  const abort = new AbortController();
  const undos = new Set<() => void>();
  let interrupted: number | undefined;
  const onSignal = (name: "SIGINT" | "SIGTERM", exit: number) =>
    process.on(name, () => {
      if (interrupted === undefined) {
        interrupted = exit;
        abort.abort(new HarborError("aborted", `interrupted by ${name}`));
        return;
      }
      for (const undo of undos) {
        try {
          undo();
        } catch {
          // on the way out: the next one still gets its turn
        }
      }
      process.exit(interrupted);
    });
  onSignal("SIGINT", 130);
  onSignal("SIGTERM", 143);
  for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {});
  const env = process.env;
  const live = Boolean(process.stderr.isTTY) && env.TERM !== "dumb" && !env.CI && (process.stderr.columns ?? 0) > 0;
  const ctx: Context = {
    runner: systemRunner(options.trace),
    clock: systemClock,
    env,
    cwd: process.cwd(),
    out: (line) => void process.stdout.write(line + "\n"),
    note: (line) => void process.stderr.write(line + "\n"),
    draw: (text) => void (live && process.stderr.write(text)),
    terminal: { live, columns: process.stderr.columns ?? 80 },
    signal: abort.signal,
    onSecondSignal(undo) {
      undos.add(undo);
      return () => undos.delete(undo);
    },
  };
  const drained = (stream: NodeJS.WriteStream) =>
    new Promise<void>((resolve) => (stream.writable ? void stream.write("", () => resolve()) : resolve()));
  return {
    ctx,
    interruptedExit: () => interrupted,
    flush: async () => void (await Promise.all([drained(process.stdout), drained(process.stderr)])),
  };
}
