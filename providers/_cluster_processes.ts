/** What of a sandbox is left when its tool let go of it: processes by their mount namespace and their control groups. */
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import process from "node:process";
import type { Clock } from "../lib/runtime/clock.ts";
import { startTime } from "../lib/sandbox/owner.ts";

export interface Init {
  pid: number;
  /** As /proc/PID/stat tells it, so that a number that was given again is seen. */
  start: string;
}

export const initOf = (pid: number): Init => ({ pid, start: startTime(pid) ?? "" });

/** `mnt:[4026532…]`; undefined for a process that is gone, is not the one that was meant, or lives in our own. */
export function namespaceOf({ pid, start }: Init): string | undefined {
  if (start === "" || startTime(pid) !== start) return undefined;
  const found = linkOf(pid);
  return found === linkOf("self") ? undefined : found;
}

function linkOf(pid: number | string): string | undefined {
  try {
    return readlinkSync(`/proc/${pid}/ns/mnt`);
  } catch {
    return undefined;
  }
}

/** What a sandbox's processes are found by, whatever became of its tool. */
export interface Traces {
  /** Its mount namespace; undefined where it was never known. */
  namespace: string | undefined;
  /** Its control groups, in which the clients that run its commands are as well. */
  groups: readonly string[];
}

/** Kills everything of a sandbox once. Whether anything was found. */
export function killTraces({ namespace, groups }: Traces): boolean {
  const grouped = groups.flatMap(processesIn);
  const inside = namespace === undefined ? [] : allProcesses().filter((pid) => linkOf(pid) === namespace);
  const found = [...new Set([...grouped, ...inside])].filter((pid) => pid !== process.pid);
  for (const pid of found) {
    try {
      process.kill(pid, "SIGKILL");
    } catch {
      // it ended meanwhile
    }
  }
  return found.length > 0;
}

const allProcesses = (): number[] => readdirSync("/proc").filter((name) => /^\d+$/.test(name)).map(Number);

function processesIn(group: string): number[] {
  try {
    return readFileSync(`${group}/cgroup.procs`, "utf8").split("\n").filter((line) => line !== "").map(Number);
  } catch {
    return [];
  }
}

const ROUNDS = 200;

/** Until nothing is left; about two seconds at most. */
export async function endTraces(traces: Traces, clock: Pick<Clock, "sleep">): Promise<void> {
  for (let round = 0; round < ROUNDS && killTraces(traces); round++) await clock.sleep(10);
}
