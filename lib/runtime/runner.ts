/**
 * Starts programs on this host. Argument arrays only: no shell ever parses a task's words.
 *
 * Every program runs in its own session and process group. Stopping is SIGTERM to the group, a grace, then SIGKILL,
 * with both pipes drained throughout, so a chatty program never blocks on a full pipe while it is asked to end.
 * Output is kept as head and tail within a budget; the middle that fell out is counted, never silently lost.
 */
import { spawn } from "node:child_process";
import process from "node:process";
import { Buffer } from "node:buffer";
import type { Readable, Writable } from "node:stream";
import { errno, HarborError, messageOf } from "../errors.ts";
import { HeadTail } from "./head_tail.ts";

export interface RunOptions {
  cwd?: string;
  /** The whole environment of the program. Default: ours without the variables that steer our own runtime. */
  env?: Readonly<Record<string, string | undefined>>;
  /** Bytes for its standard input, or a function that writes them with back-pressure. Default: /dev/null. */
  stdin?: string | Uint8Array | ((to: Writable) => Promise<void>);
  /** Wall-clock bound in milliseconds. */
  deadlineMs?: number;
  /** Time between SIGTERM and SIGKILL; 0 sends SIGKILL at once. Default 2000. */
  graceMs?: number;
  signal?: AbortSignal;
  /** Sees every chunk of stdout as it arrives, before capping. */
  onStdout?: (chunk: Uint8Array) => void;
  onStderr?: (chunk: Uint8Array) => void;
  /** Bytes kept of each stream: half head, half tail. Default 1 MiB. */
  keepBytes?: number;
}

export interface RunResult {
  /** Why it ended. Only "exit" makes `exitCode` the program's own word. */
  ended: "exit" | "signal" | "deadline" | "aborted";
  /** The program's exit code; 128 + n when a signal ended it. */
  exitCode: number;
  /** Head and tail of each stream, `keepBytes` in all, decoded lossily; `droppedBytes` counts what fell out of the middle. */
  stdout: string;
  stderr: string;
  droppedBytes: number;
}

/** A program that is still running. */
export interface Started {
  readonly pid: number;
  readonly stdin: Writable;
  readonly stdout: Readable;
  readonly stderr: Readable;
  /** Resolves when it has ended and its pipes are drained. Never rejects. */
  readonly ended: Promise<{ exitCode: number; signal: string | null }>;
  /** Signals its whole process group; a group that is already gone is not an error. */
  kill(signal: "SIGTERM" | "SIGKILL" | "SIGINT"): void;
}

export interface Runner {
  /** Runs to the end. Throws HarborError "machine.lacks" when the program cannot be started at all. */
  run(argv: readonly string[], options?: RunOptions): Promise<RunResult>;
  /** Starts and hands over the pipes. Throws like run(). */
  start(argv: readonly string[], options?: Pick<RunOptions, "cwd" | "env">): Promise<Started>;
}

/**
 * Names that would make a child of ours behave as a runtime instead of a program: `BUN_OPTIONS` preloads code into
 * any Bun build, `BUN_BE_BUN` turns the binary into bun itself (Bun 1.4.5).
 */
const STEERING = ["BUN_OPTIONS", "BUN_BE_BUN", "BUN_INSPECT", "NODE_OPTIONS", "DENO_DIR"];

/** Our environment as a child may see it. */
export function inheritedEnv(env: Readonly<Record<string, string | undefined>> = process.env): Record<string, string> {
  const kept: Record<string, string> = {};
  for (const [name, value] of Object.entries(env)) {
    if (value !== undefined && !STEERING.includes(name)) kept[name] = value;
  }
  return kept;
}

/** The real Runner. `trace` sees each argv ready to paste (for --verbose). */
export function systemRunner(trace: (line: string) => void = () => {}): Runner {
  const start = (argv: readonly string[], options: Pick<RunOptions, "cwd" | "env" | "stdin"> = {}) => {
    trace(quoted(argv));
    return startProcess(argv, options, true);
  };
  return {
    start,
    run: async (argv, options = {}) => {
      trace(quoted(argv));
      const child = await startProcess(argv, options, options.stdin !== undefined);
      return await drive(child, options);
    },
  };
}

async function drive(child: Started, options: RunOptions): Promise<RunResult> {
  const keep = options.keepBytes ?? 1024 * 1024;
  const out = new HeadTail(keep);
  const err = new HeadTail(keep);
  child.stdout.on("data", (chunk: Buffer) => (options.onStdout?.(chunk), out.push(chunk)));
  child.stderr.on("data", (chunk: Buffer) => (options.onStderr?.(chunk), err.push(chunk)));
  let stopped: "deadline" | "aborted" | undefined;
  let killer: ReturnType<typeof setTimeout> | undefined;
  const stop = (why: "deadline" | "aborted") => {
    if (stopped !== undefined) return;
    stopped = why;
    const grace = options.graceMs ?? 2000;
    child.kill(grace > 0 ? "SIGTERM" : "SIGKILL");
    if (grace > 0) killer = setTimeout(() => child.kill("SIGKILL"), grace);
  };
  const onAbort = () => stop("aborted");
  const timer = options.deadlineMs !== undefined && Number.isFinite(options.deadlineMs)
    ? setTimeout(() => stop("deadline"), Math.min(options.deadlineMs, 2 ** 31 - 1))
    : undefined;
  if (options.signal?.aborted) onAbort();
  options.signal?.addEventListener("abort", onAbort, { once: true });
  try {
    await feed(child.stdin, options.stdin);
    const { exitCode, signal } = await child.ended;
    return {
      ended: stopped ?? (signal === null ? "exit" : "signal"),
      exitCode,
      stdout: out.text(),
      stderr: err.text(),
      droppedBytes: out.droppedBytes + err.droppedBytes,
    };
  } finally {
    clearTimeout(timer);
    clearTimeout(killer);
    options.signal?.removeEventListener("abort", onAbort);
  }
}

/** A program that does not read all of its input is free to: EPIPE ends the feeding, not the run. */
async function feed(to: Writable, stdin: RunOptions["stdin"]): Promise<void> {
  if (stdin === undefined) return;
  try {
    if (typeof stdin === "function") await stdin(to);
    else to.write(stdin);
    to.end();
  } catch (error) {
    if (errno(error) !== "EPIPE" && errno(error) !== "ERR_STREAM_DESTROYED") throw error;
  }
}

function startProcess(
  argv: readonly string[],
  options: Pick<RunOptions, "cwd" | "env">,
  withStdin: boolean,
): Promise<Started> {
  const [program, ...args] = argv;
  if (program === undefined) throw new TypeError("an empty argv starts nothing");
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, {
      cwd: options.cwd,
      env: inheritedEnv(options.env ?? process.env),
      stdio: [withStdin ? "pipe" : "ignore", "pipe", "pipe"],
      detached: true,
    });
    const kill = (signal: "SIGTERM" | "SIGKILL" | "SIGINT") => {
      try {
        if (child.pid !== undefined) process.kill(-child.pid, signal);
      } catch (error) {
        if (errno(error) !== "ESRCH" && errno(error) !== "EPERM") throw error;
      }
    };
    let exit: { exitCode: number; signal: string | null } | undefined;
    const ended = new Promise<{ exitCode: number; signal: string | null }>((done) => {
      child.on("exit", (code, signal) => {
        exit = { exitCode: code ?? 128 + signalNumber(signal), signal };
        // A grandchild may hold the pipes after the program itself ended: its output gets a moment, then we leave.
        setTimeout(() => (child.stdout?.destroy(), child.stderr?.destroy(), done(exit!)), PIPE_GRACE_MS).unref?.();
      });
      child.on("close", () => done(exit ?? { exitCode: 1, signal: null }));
    });
    child.once("error", (cause) => {
      reject(
        new HarborError("machine.lacks", `Cannot start ${program}: ${startFault(cause)}`, {
          cause,
          hint: errno(cause) === "ENOENT" ? `install ${program}, or put it on PATH` : undefined,
        }),
      );
    });
    child.once("spawn", () => {
      child.stdin?.on("error", () => {}); // EPIPE when it ends before reading all; feed() ends by itself
      resolve({
        pid: child.pid!,
        stdin: child.stdin as unknown as Writable,
        stdout: child.stdout!,
        stderr: child.stderr!,
        ended,
        kill,
      });
    });
  });
}

const PIPE_GRACE_MS = 2000;

function startFault(cause: unknown): string {
  switch (errno(cause)) {
    case "ENOENT":
      return "no such program (or no such working folder)";
    case "EACCES":
      return "it may not be executed";
    case "E2BIG":
      return "its arguments and environment are too long";
    default:
      return messageOf(cause);
  }
}

const SIGNALS: Record<string, number> = {
  SIGHUP: 1,
  SIGINT: 2,
  SIGQUIT: 3,
  SIGABRT: 6,
  SIGKILL: 9,
  SIGSEGV: 11,
  SIGPIPE: 13,
  SIGTERM: 15,
};
const signalNumber = (signal: string | null): number => (signal === null ? 0 : SIGNALS[signal] ?? 0);

/** One POSIX shell word: safe to paste, safe to put into a script we send to a shell. The only quoting function. */
export function shellQuote(word: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** An argv as a person would type it. */
export function quoted(argv: readonly string[]): string {
  return argv.map(shellQuote).join(" ");
}
