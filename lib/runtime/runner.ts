/**
 * Starts programs on this host. Argument arrays only: no shell ever parses a task's words.
 *
 * Every program runs in its own session and process group. Stopping is SIGTERM to the group, a grace, then SIGKILL,
 * with both pipes drained throughout, so a chatty program never blocks on a full pipe while it is asked to end; what of
 * the group outlives its leader is killed as well. Output is kept as head and tail within a budget; the middle that
 * fell out is counted, never silently lost. A program that ended is not waited for longer because a child that it left
 * behind holds its pipes.
 */
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { constants } from "node:os";
import process from "node:process";
import { Buffer } from "node:buffer";
import type { Readable, Writable } from "node:stream";
import { errno, HarborError, messageOf } from "../errors.ts";
import { LONGEST_TIMER_MS } from "./clock.ts";
import { inheritedEnv } from "./env.ts";
import { HeadTail } from "./head_tail.ts";

export { inheritedEnv };

export interface RunOptions {
  cwd?: string;
  /** The whole environment of the program, exactly. Default: inheritedEnv(). */
  env?: Readonly<Record<string, string | undefined>>;
  /**
   * Bytes for its standard input, or a function that writes them with back-pressure. Default: /dev/null. A program that
   * does not read all of it is free to; an error of the function ends the program and is thrown.
   */
  stdin?: string | Uint8Array | ((to: Writable) => Promise<void>);
  /** Wall-clock bound in milliseconds. */
  deadlineMs?: number;
  /** Time between SIGTERM and SIGKILL; 0 sends SIGKILL at once. Default 2000. */
  graceMs?: number;
  /** Ends it in another way than by SIGTERM, grace and SIGKILL, at the deadline or on abort; whatever it takes. */
  end?: (program: Started) => Promise<void>;
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
  /** Head and tail of each stream, `keepBytes` of each, decoded lossily; `droppedBytes` counts what fell out of both. */
  stdout: string;
  stderr: string;
  droppedBytes: number;
}

/** A program that is still running. Whoever starts one reads both of its pipes. */
export interface Started {
  readonly pid: number;
  readonly stdin: Writable;
  readonly stdout: Readable;
  readonly stderr: Readable;
  /** Resolves when the program itself ended; its pipes may still hold output. Never rejects. */
  readonly exited: Promise<{ exitCode: number; signal: string | null }>;
  /** Resolves when it ended and its pipes are drained: a slow reader is waited for, a child it left behind is not. */
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

/** The real Runner. `trace` sees each argv ready to paste (for --verbose). */
export function systemRunner(trace: (line: string) => void = () => {}): Runner {
  return {
    start: (argv, options = {}) => {
      trace(quoted(argv));
      return startProcess(argv, options, true);
    },
    run: async (argv, options = {}) => {
      trace(quoted(argv));
      if (options.signal?.aborted) return NEVER_STARTED;
      return await drive(await startProcess(argv, options, options.stdin !== undefined), options);
    },
  };
}

const NEVER_STARTED: RunResult = { ended: "aborted", exitCode: 143, stdout: "", stderr: "", droppedBytes: 0 };

async function drive(child: Started, options: RunOptions): Promise<RunResult> {
  const keep = options.keepBytes ?? 1024 * 1024;
  const out = new HeadTail(keep);
  const err = new HeadTail(keep);
  child.stdout.on("data", (chunk: Buffer) => (options.onStdout?.(chunk), out.push(chunk)));
  child.stderr.on("data", (chunk: Buffer) => (options.onStderr?.(chunk), err.push(chunk)));
  let hasExited = false;
  let stopped: "deadline" | "aborted" | undefined;
  let killer: ReturnType<typeof setTimeout> | undefined;
  child.exited.then(() => (hasExited = true));
  const stop = (why: "deadline" | "aborted") => {
    if (hasExited || stopped !== undefined) return; // it had its own word before we had ours
    stopped = why;
    if (options.end !== undefined) return void options.end(child).catch(() => child.kill("SIGKILL"));
    const grace = options.graceMs ?? 2000;
    child.kill(grace > 0 ? "SIGTERM" : "SIGKILL");
    if (grace > 0) killer = setTimeout(() => child.kill("SIGKILL"), grace);
  };
  const onAbort = () => stop("aborted");
  const timer = (options.deadlineMs ?? Infinity) <= LONGEST_TIMER_MS
    ? setTimeout(() => stop("deadline"), options.deadlineMs)
    : undefined;
  if (options.signal?.aborted) onAbort();
  options.signal?.addEventListener("abort", onAbort, { once: true });
  try {
    // A program that ends without reading leaves the feeder waiting for room that never comes: its end is ours too.
    await Promise.race([feed(child.stdin, options.stdin), child.exited]).catch(async (error) => {
      child.kill("SIGKILL");
      await child.ended;
      throw error;
    });
    await child.exited;
    if (stopped !== undefined) child.kill("SIGKILL"); // members of the group that took SIGTERM lightly
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
    if (!GONE.has(errno(error) ?? "")) throw error;
  }
}

/** How a stream says that its reader left. */
const GONE = new Set(["EPIPE", "ECONNRESET", "ERR_STREAM_DESTROYED", "ERR_STREAM_PREMATURE_CLOSE"]);

function startProcess(
  argv: readonly string[],
  options: Pick<RunOptions, "cwd" | "env">,
  withStdin: boolean,
): Promise<Started> {
  const [program, ...args] = argv;
  if (program === undefined) throw new TypeError("an empty argv starts nothing");
  return new Promise((resolve, reject) => {
    const refuse = (cause: unknown) => reject(startFault(program, options.cwd, cause));
    let child: ReturnType<typeof spawnPiped>;
    try {
      child = spawnPiped(program, args, options, withStdin);
    } catch (cause) {
      return refuse(cause); // E2BIG and NUL bytes are thrown, not emitted, by some runtimes
    }
    const kill = (signal: "SIGTERM" | "SIGKILL" | "SIGINT") => {
      try {
        if (child.pid !== undefined) process.kill(-child.pid, signal);
      } catch (error) {
        if (errno(error) !== "ESRCH" && errno(error) !== "EPERM") throw error;
      }
    };
    const exited = new Promise<Exit>((done) => {
      child.once("exit", (code, signal) => done({ exitCode: code ?? 128 + signalNumber(signal), signal }));
    });
    const drained = new Promise<void>((done) => void child.once("close", () => done()));
    child.once("error", refuse);
    child.once("spawn", () => {
      child.stdin?.on("error", () => {}); // EPIPE when it ends before reading all; feed() ends by itself
      resolve({
        pid: child.pid!,
        stdin: child.stdin as unknown as Writable,
        stdout: child.stdout!,
        stderr: child.stderr!,
        exited,
        ended: exited.then(async (exit) => {
          await Promise.race([drained, heldByOthers([child.stdout!, child.stderr!])]);
          return exit;
        }),
        kill,
      });
    });
  });
}

type Exit = { exitCode: number; signal: string | null };

const spawnPiped = (
  program: string,
  args: string[],
  options: Pick<RunOptions, "cwd" | "env">,
  withStdin: boolean,
) =>
  spawn(program, args, {
    cwd: options.cwd,
    env: options.env ?? inheritedEnv(),
    stdio: [withStdin ? "pipe" : "ignore", "pipe", "pipe"],
    detached: true,
  });

const PIPE_GRACE_MS = 2000;
const PIPE_POLL_MS = 100;

/**
 * Resolves, with the pipes given up, when a program has ended but something it left behind holds them: after a grace in
 * which whatever it wrote has been read. A pipe whose reader is slow or paused is not given up: its data is still owed.
 */
async function heldByOthers(pipes: Readable[]): Promise<void> {
  const wait = (ms: number) => new Promise<void>((resolve) => void setTimeout(resolve, ms).unref?.());
  await wait(PIPE_GRACE_MS);
  const owed = (pipe: Readable) =>
    !pipe.destroyed && !pipe.readableEnded && pipe.readableFlowing !== null &&
    (pipe.readableFlowing === false || pipe.readableLength > 0);
  while (pipes.some(owed)) await wait(PIPE_POLL_MS);
  for (const pipe of pipes) pipe.destroy();
}

function startFault(program: string, cwd: string | undefined, cause: unknown): HarborError {
  const noFolder = errno(cause) === "ENOENT" && cwd !== undefined && !existsSync(cwd);
  const [fact, hint] = noFolder
    ? [`there is no working folder ${cwd}`, undefined]
    : START_FAULTS[errno(cause) ?? ""]?.(program) ?? [messageOf(cause), undefined];
  return new HarborError("machine.lacks", `Cannot start ${program}: ${fact}`, { cause, hint });
}

const START_FAULTS: Record<string, (program: string) => [fact: string, hint: string | undefined]> = {
  ENOENT: (program) => ["no such program", `install ${program}, or put it on PATH`],
  EACCES: (program) => ["it may not be executed", `look at: ls -l "$(command -v ${program})"`],
  ENOEXEC: () => ["it is not a program for this machine", undefined],
  E2BIG: () => ["its arguments and environment are too long", undefined],
  EAGAIN: () => ["no more processes are allowed", "raise the limit (ulimit -u), or lower --concurrency"],
  EMFILE: () => ["no more open files are allowed", "raise the limit (ulimit -n), or lower --concurrency"],
  ENFILE: () => ["this machine has no more open files", "lower --concurrency"],
  ENOMEM: () => ["there is no memory left", "lower --concurrency"],
};

function signalNumber(signal: NodeJS.Signals | null): number {
  return signal === null ? 0 : constants.signals[signal] ?? 0;
}

/** One POSIX shell word: safe to paste, safe to put into a script we send to a shell. The only quoting function. */
export function shellQuote(word: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** An argv as a person would type it. */
export function quoted(argv: readonly string[]): string {
  return argv.map(shellQuote).join(" ");
}
