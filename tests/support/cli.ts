/**
 * Drives the compiled program from outside, as a person or a script would: an argv in; exit code, streams and files out.
 * The binary is `GYM_HARBOR_BIN`, else one that is compiled once per state of the sources and kept in the temp folder.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, statSync } from "node:fs";
import { delimiter, dirname, join, relative } from "node:path";
import { tmpdir } from "node:os";
import process from "node:process";
import { fileURLToPath } from "node:url";

/** Top folder of the repository. */
export const REPOSITORY = join(dirname(fileURLToPath(import.meta.url)), "..", "..");

export interface CliOptions {
  cwd?: string;
  /** Over the environment of the tests; undefined removes a name. */
  env?: Record<string, string | undefined>;
  /** The program is killed after this; default 180,000 ms. */
  timeoutMs?: number;
  /** Words put before the program's own (`setpriv --reuid 1000 …`, `script -qec`, `unshare …`). */
  wrap?: readonly string[];
  /** Starts the program as leader of a process group of its own, so that nothing of it can hide from `kill`. */
  detached?: boolean;
}

export interface CliResult {
  /** Null when a signal ended it. */
  code: number | null;
  signal: NodeJS.Signals | null;
  stdout: string;
  stderr: string;
  ms: number;
}

/** A program that runs. */
export interface StartedCli {
  readonly pid: number;
  readonly child: ChildProcess;
  /** What it printed until now. */
  stdout(): string;
  stderr(): string;
  kill(signal: NodeJS.Signals): void;
  wait(): Promise<CliResult>;
}

/** Starts the program; the caller waits for it. */
export function startCli(args: readonly string[], options: CliOptions = {}): StartedCli {
  const argv = [...asUser(), ...(options.wrap ?? []), binary(), ...args];
  const began = performance.now();
  const child = spawn(argv[0]!, argv.slice(1), {
    cwd: options.cwd,
    env: environment(options.env),
    stdio: ["ignore", "pipe", "pipe"],
    detached: options.detached ?? false,
  });
  const chunks = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
  child.stdout!.on("data", (chunk: Uint8Array) => void chunks.stdout.push(chunk));
  child.stderr!.on("data", (chunk: Uint8Array) => void chunks.stderr.push(chunk));
  const text = (parts: Uint8Array[]): string => new TextDecoder().decode(concat(parts));
  const timer = setTimeout(() => child.kill("SIGKILL"), options.timeoutMs ?? 180_000);
  const ended = new Promise<CliResult>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code, signal) => {
      clearTimeout(timer);
      resolve({
        code,
        signal,
        stdout: text(chunks.stdout),
        stderr: text(chunks.stderr),
        ms: performance.now() - began,
      });
    });
  });
  ended.catch(() => undefined); // whoever waits sees it; nobody else needs to
  return {
    pid: child.pid ?? -1,
    child,
    stdout: () => text(chunks.stdout),
    stderr: () => text(chunks.stderr),
    // Not child.kill(): Deno 2.9.6 then reports the signal as the end, whatever exit code the program chose.
    kill(signal) {
      try {
        process.kill(child.pid!, signal);
      } catch (error) {
        if ((error as { code?: string }).code !== "ESRCH") throw error; // it ended by itself meanwhile
      }
    },
    wait: () => ended,
  };
}

/** `GYM_HARBOR_TEST_UID=1234` runs the program as a plain user of that id, where the tests themselves run as root. */
function asUser(): string[] {
  const uid = process.env.GYM_HARBOR_TEST_UID;
  return uid === undefined ? [] : ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups"];
}

/** Runs the program to its end. */
export function runCli(args: readonly string[], options: CliOptions = {}): Promise<CliResult> {
  return startCli(args, options).wait();
}

/** What a user must never be shown for a fault that is not ours: stack frames, runtime internals. */
export function looksLikeStackTrace(text: string): boolean {
  return /^\s+at .+[:(]\d+|\$bunfs|node_modules|^bug: /m.test(text);
}

let found: string | undefined;

/** Absolute path of the program under test. */
export function binary(): string {
  found ??= process.env.GYM_HARBOR_BIN ?? compiled();
  return found;
}

/** Compiles the working tree, once per state of its sources; other test processes find the file ready. */
function compiled(): string {
  const home = join(tmpdir(), `gym-harbor-tests-${process.getuid?.() ?? 0}`);
  const target = join(home, sourcesHash(), "gym-harbor");
  if (existsSync(target)) return target;
  mkdirSync(home, { recursive: true, mode: 0o755 });
  for (const old of readdirSync(home)) {
    if (Date.now() - statSync(join(home, old)).mtimeMs > 3_600_000) rmSync(join(home, old), { recursive: true });
  }
  const scratch = mkdtempSync(join(home, "build-"));
  const made = join(scratch, "gym-harbor");
  execFileSync("bun", [
    "build",
    "--compile",
    "--bytecode",
    "--format=esm",
    "--splitting",
    "--no-compile-autoload-dotenv",
    "--no-compile-autoload-bunfig",
    "main.ts",
    "--outfile",
    made,
  ], { cwd: REPOSITORY, env: withTools(), stdio: ["ignore", "ignore", "inherit"] });
  execFileSync("chmod", ["-R", "a+rX", scratch]); // tests start it as other users too
  try {
    renameSync(scratch, dirname(target));
  } catch (error) {
    if (!existsSync(target)) throw error; // else another process was faster
    rmSync(scratch, { recursive: true });
  }
  return target;
}

function sourcesHash(): string {
  const hash = createHash("sha256");
  for (const path of ["main.ts", "deno.json", "deno.lock", ...["cmd", "lib", "providers"].flatMap(filesBelow)]) {
    hash.update(`${path}\0`).update(readFileSync(join(REPOSITORY, path))).update("\0");
  }
  return hash.digest("hex").slice(0, 16);
}

function filesBelow(folder: string): string[] {
  const top = join(REPOSITORY, folder);
  if (!existsSync(top)) return [];
  return readdirSync(top, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(REPOSITORY, join(entry.parentPath, entry.name)))
    .sort();
}

/** The environment with the pinned tools in front. */
function withTools(): Record<string, string | undefined> {
  const tools = join(REPOSITORY, "tools", "node_modules", ".bin");
  return { ...process.env, PATH: `${tools}${delimiter}${process.env.PATH ?? ""}` };
}

function environment(over: Record<string, string | undefined> = {}): Record<string, string> {
  const merged = { ...process.env, ...over };
  return Object.fromEntries(Object.entries(merged).filter((pair): pair is [string, string] => pair[1] !== undefined));
}

function concat(parts: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
