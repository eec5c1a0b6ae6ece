/** One build by an engine's client, held to its limit with everything that it started. */
import { readdirSync, readFileSync } from "node:fs";
import process from "node:process";
import { errno } from "../../lib/errors.ts";
import { type Clock, settlesWithin } from "../../lib/runtime/clock.ts";
import type { Runner, RunResult } from "../../lib/runtime/runner.ts";

export interface BuildRun {
  argv: readonly string[];
  env: Readonly<Record<string, string | undefined>>;
  deadlineMs: number;
  signal: AbortSignal;
  onOutput: (chunk: Uint8Array) => void;
}

/** A client whose step was ended tidies up by itself; it gets this long, and again after SIGTERM. */
const TIDY_MS = 10_000;
const TERM_MS = 5_000;

/**
 * At the limit the step that runs is ended first, so that the client fails in its own way and removes what it made:
 * buildah 1.28 that is killed at once leaves the step running and its working container behind.
 */
export function runBuild(
  { runner, clock }: { runner: Runner; clock: Clock },
  { argv, env, deadlineMs, signal, onOutput }: BuildRun,
): Promise<RunResult> {
  return runner.run(argv, {
    env,
    deadlineMs,
    signal,
    onStdout: onOutput,
    onStderr: onOutput,
    end: async (client) => {
      if (endDescendants(client.pid) > 0 && await settlesWithin(client.ended, TIDY_MS, clock)) return;
      endDescendants(client.pid);
      client.kill("SIGTERM");
      if (!await settlesWithin(client.ended, TERM_MS, clock)) client.kill("SIGKILL");
    },
  });
}

/** Kills what a process of ours started, and what that started; not the process itself. Returns how many there were. */
export function endDescendants(root: number): number {
  const below = descendants(root, processTable());
  for (const pid of below) {
    try {
      process.kill(pid, "SIGKILL");
    } catch (error) {
      if (errno(error) !== "ESRCH" && errno(error) !== "EPERM") throw error;
    }
  }
  return below.length;
}

/** Everything below `root`, given each process's parent. */
export function descendants(root: number, parents: ReadonlyMap<number, number>): number[] {
  const found = new Set([root]);
  for (let before = 0; before !== found.size;) {
    before = found.size;
    for (const [pid, parent] of parents) if (found.has(parent)) found.add(pid);
  }
  found.delete(root);
  return [...found];
}

function processTable(): Map<number, number> {
  const parents = new Map<number, number>();
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const stat = readFileSync(`/proc/${name}/stat`, "latin1");
      parents.set(Number(name), Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]));
    } catch {
      // it ended meanwhile
    }
  }
  return parents;
}
