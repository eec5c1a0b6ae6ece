/**
 * Who made a container, a mount or a temp folder: the run, and the process that must be alive for it to be in use.
 * A pid alone is not enough: pids are reused, and PID 1 of some machines reaps late, so the state letter and the
 * start time of /proc/PID/stat are read as well.
 */
import { readFileSync } from "node:fs";
import { hostname } from "node:os";
import process from "node:process";

export interface Owner {
  /** Random id of the run, `[a-z0-9]{8}`. */
  readonly run: string;
  readonly host: string;
  readonly pid: number;
  /** Start time of the process in clock ticks since boot (/proc/PID/stat field 22), as text; "" where unknown. */
  readonly start: string;
}

/** This process as an owner. */
export function thisOwner(run: string): Owner {
  return { run, host: hostname(), pid: process.pid, start: startTime(process.pid) ?? "" };
}

/** `[a-z0-9]{8}` at random. */
export function newRunId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => (byte % 36).toString(36)).join("");
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

/** Whether the owner still lives. Undefined on another host: nobody can tell from here, so nothing of it is touched. */
export function isAlive(owner: Pick<Owner, "host" | "pid" | "start">): boolean | undefined {
  if (owner.host !== hostname()) return undefined;
  const start = startTime(owner.pid);
  return start !== undefined && (owner.start === "" || start === owner.start);
}

/** Whether a filter by runs means this owner's. */
export function concerns(
  filter: { run?: string; except?: (run: string) => boolean },
  { run }: Pick<Owner, "run">,
): boolean {
  return (filter.run === undefined || filter.run === run) && filter.except?.(run) !== true;
}

/** Labels that every object of ours carries, as upstream's provider names them plus the owner. */
export const LABEL = "gym-harbor";

export function labelsOf(owner: Owner, episode: string, role: string): Record<string, string> {
  return {
    [`${LABEL}.run`]: owner.run,
    [`${LABEL}.host`]: owner.host,
    [`${LABEL}.pid`]: String(owner.pid),
    [`${LABEL}.start`]: owner.start,
    [`${LABEL}.episode`]: episode,
    [`${LABEL}.role`]: role,
  };
}

/** The owner that labels name; undefined when they are not ours. */
export function ownerOf(labels: Readonly<Record<string, string | undefined>>): Owner | undefined {
  const run = labels[`${LABEL}.run`];
  const host = labels[`${LABEL}.host`];
  const pid = Number(labels[`${LABEL}.pid`]);
  if (run === undefined || host === undefined || !Number.isInteger(pid) || pid <= 0) return undefined;
  return { run, host, pid, start: labels[`${LABEL}.start`] ?? "" };
}
