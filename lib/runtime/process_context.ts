/**
 * The real Context: this process's streams, signals, environment and clock.
 *
 * The first SIGINT, SIGTERM or SIGHUP aborts `signal`; the second, and an error that nobody caught, runs what registered
 * itself with onSecondSignal() and leaves at once. What is printed by note() is made visible(), so that nothing a task
 * printed reaches the terminal as a command; out() does so when stdout is a terminal and leaves bytes alone in a pipe,
 * where a program reads them.
 */
import { readFileSync, writeSync } from "node:fs";
import process from "node:process";
import type { Context } from "../context.ts";
import { EXIT, HarborError } from "../errors.ts";
import { systemClock } from "./clock.ts";
import { standardOutputs } from "./output.ts";
import { inheritedEnv } from "./env.ts";
import type { Runner } from "./runner.ts";
import { maybeTerminal, stderrTerminal, terminalText, visible } from "./terminal.ts";

export interface ProcessContext {
  ctx: Context;
  /** Which signal came first, if any: its exit code. */
  interruptedExit(): number | undefined;
  /** Waits until everything printed has left this process. False when results on stdout were lost, which stderr says. */
  flush(): Promise<boolean>;
}

/** Takes over this process's signals; to be called once. `verbose` traces every program that is started. */
export function processContext(options: { verbose?: boolean } = {}): ProcessContext {
  const abort = new AbortController();
  const undos = new Set<() => void>();
  let interrupted: number | undefined;
  const onSignal = (name: "SIGINT" | "SIGTERM" | "SIGHUP", exit: number) =>
    process.on(name, () => {
      if (interrupted === undefined) {
        interrupted = exit;
        abort.abort(new HarborError("aborted", `interrupted by ${name}`));
        return;
      }
      leave(interrupted);
    });
  const leave = (exit: number): never => {
    for (const undo of undos) {
      try {
        undo();
      } catch {
        // on the way out: the next one still gets its turn
      }
    }
    process.exit(exit);
  };
  const onBug = (error: unknown) => {
    writeSync(2, visible(`bug: ${error instanceof Error ? error.stack : error}\n`));
    leave(EXIT.no);
  };
  process.on("uncaughtException", onBug);
  process.on("unhandledRejection", onBug);
  const nohup = ignoredFromTheStart(SIGHUP); // asked before the first handler: Deno 2.9.6 then takes all of them over
  onSignal("SIGINT", EXIT.interrupted);
  onSignal("SIGTERM", EXIT.terminated);
  if (nohup) process.on("SIGHUP", () => {});
  else onSignal("SIGHUP", EXIT.hungUp);
  const env = inheritedEnv();
  const { out, err } = standardOutputs();
  const terminal = stderrTerminal(env);
  const typed = terminalText(env);
  const shown = maybeTerminal(1) ? typed : (text: string) => text;
  const noted = maybeTerminal(2) ? typed : visible;
  const note = (line: string) => err.write(noted(line) + "\n");
  const ctx: Context = {
    runner: lazyRunner(options.verbose ? (line) => note(`+ ${line}`) : undefined),
    clock: systemClock,
    env,
    get cwd() {
      return workingFolder();
    },
    out: (line) => out.write(shown(line) + "\n"),
    note,
    draw: (text) => void (terminal.live && err.write(text)),
    terminal,
    signal: abort.signal,
    onSecondSignal(undo) {
      undos.add(undo);
      return () => undos.delete(undo);
    },
  };
  return {
    ctx,
    interruptedExit: () => interrupted,
    flush: async () => {
      await out.flush();
      if (out.fault !== undefined) note(`error[store.unwritable]: Cannot write to stdout: ${out.fault}`);
      await err.flush();
      return out.fault === undefined;
    },
  };
}

/** The real Runner, loaded with the first program: a start that runs none is spared a millisecond. */
function lazyRunner(trace?: (line: string) => void): Runner {
  let loaded: Promise<Runner> | undefined;
  const load = () => (loaded ??= import("./runner.ts").then(({ systemRunner }) => systemRunner(trace)));
  return {
    run: async (argv, options) => await (await load()).run(argv, options),
    start: async (argv, options) => await (await load()).start(argv, options),
  };
}

const SIGHUP = 1;

/** Whether whoever started us wants this signal ignored; a handler of ours would undo that. */
function ignoredFromTheStart(signal: number): boolean {
  try {
    const mask = /^SigIgn:\s*([0-9a-f]+)$/m.exec(readFileSync("/proc/self/status", "latin1"))?.[1];
    return mask !== undefined && (BigInt(`0x${mask}`) >> BigInt(signal - 1)) % 2n === 1n;
  } catch {
    return false;
  }
}

function workingFolder(): string {
  try {
    return process.cwd();
  } catch (cause) {
    throw new HarborError("machine.lacks", "the working folder is gone", { cause, hint: "cd to a folder that exists" });
  }
}
