/**
 * Which process something belongs to, so that another process of this machine can tell later whether it still lives. A
 * pid alone is not enough: pids are reused, and PID 1 of some machines reaps late, so the state letter and the start
 * time of /proc/PID/stat are read as well.
 */
import { readFileSync } from "node:fs";
import { hostname } from "node:os";
import process from "node:process";

export interface ProcessIdentity {
  readonly host: string;
  readonly pid: number;
  /** Start time of the process in clock ticks since boot (/proc/PID/stat field 22), as text; "" where unknown. */
  readonly start: string;
}

export function thisProcess(): ProcessIdentity {
  return { host: hostname(), pid: process.pid, start: startTime(process.pid) ?? "" };
}

/** Start time of a living process, or undefined when it is gone or a zombie. */
export function startTime(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return fields[0] === "Z" || fields[0] === "X" ? undefined : fields[19];
  } catch {
    return undefined;
  }
}

/** Whether the process still lives. Undefined on another host: nobody can tell from here, so nothing of it is touched. */
export function isAlive({ host, pid, start }: ProcessIdentity): boolean | undefined {
  if (host !== hostname()) return undefined;
  const now = startTime(pid);
  return now !== undefined && (start === "" || start === now);
}
