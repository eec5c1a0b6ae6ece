/** Processes of this machine by the mount namespace they live in: what of a sandbox is left when its tool let go of it. */
import { readdirSync, readlinkSync } from "node:fs";
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

/** Kills everything in a mount namespace of a sandbox. Whether anything was found. */
export function killNamespace(namespace: string): boolean {
  let found = false;
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name)).map(Number)) {
    if (pid === process.pid || linkOf(pid) !== namespace) continue;
    found = true;
    try {
      process.kill(pid, "SIGKILL");
    } catch {
      // it ended meanwhile
    }
  }
  return found;
}

const ROUNDS = 200;

/** Until nothing is left; about two seconds at most. */
export async function endNamespace(namespace: string, clock: Pick<Clock, "sleep">): Promise<void> {
  for (let round = 0; round < ROUNDS && killNamespace(namespace); round++) await clock.sleep(10);
}
