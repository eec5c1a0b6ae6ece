/**
 * The processes of a sandbox as this machine counts them, read from /proc: who belongs to which command, and ending
 * them. Everything inside descends from PID 1 of the sandbox, since orphans are handed to it.
 */
import { readdirSync, readFileSync } from "node:fs";
import process from "node:process";

export interface ProcessFacts {
  pid: number;
  parent: number;
  group: number;
  session: number;
  /** Clock ticks since boot. */
  start: number;
  zombie: boolean;
}

/** Name of the variable by which a command's processes are known. */
export const EXEC_ID = "GYM_EXEC_ID";

/** One line of /proc/PID/stat (proc(5)); the name in parentheses may hold anything. */
export function parseStat(stat: string): ProcessFacts | undefined {
  const close = stat.lastIndexOf(")");
  const fields = stat.slice(close + 2).split(" ");
  const pid = Number.parseInt(stat, 10);
  if (close < 0 || fields.length < 20 || !Number.isInteger(pid)) return undefined;
  return {
    pid,
    zombie: fields[0] === "Z" || fields[0] === "X",
    parent: Number(fields[1]),
    group: Number(fields[2]),
    session: Number(fields[3]),
    start: Number(fields[19]),
  };
}

/** All living processes below `init`, without it. */
export function descendants(init: number): ProcessFacts[] {
  const found = throughChildren(init) ?? throughAll(init);
  return found.filter((one) => !one.zombie);
}

/** By /proc/PID/task/TID/children, which costs what the sandbox holds; undefined where the kernel has no such file. */
function throughChildren(init: number): ProcessFacts[] | undefined {
  if (read(`/proc/${init}/task/${init}/children`) === undefined) return undefined;
  const found: ProcessFacts[] = [];
  const queue = [init];
  for (let next = queue.pop(); next !== undefined; next = queue.pop()) {
    for (const thread of list(`/proc/${next}/task`)) {
      for (const child of read(`/proc/${next}/task/${thread}/children`)?.trim().split(" ") ?? []) {
        const facts = child === "" ? undefined : factsOf(child);
        if (facts === undefined) continue;
        found.push(facts);
        queue.push(facts.pid);
      }
    }
  }
  return found;
}

function throughAll(init: number): ProcessFacts[] {
  const children = new Map<number, ProcessFacts[]>();
  for (const name of list("/proc")) {
    const one = /^\d+$/.test(name) ? factsOf(name) : undefined;
    if (one === undefined) continue;
    const siblings = children.get(one.parent);
    if (siblings === undefined) children.set(one.parent, [one]);
    else siblings.push(one);
  }
  const found: ProcessFacts[] = [];
  const queue = [init];
  for (let next = queue.pop(); next !== undefined; next = queue.pop()) {
    for (const child of children.get(next) ?? []) {
      found.push(child);
      queue.push(child.pid);
    }
  }
  return found;
}

function factsOf(pid: string): ProcessFacts | undefined {
  const text = read(`/proc/${pid}/stat`);
  return text === undefined ? undefined : parseStat(text);
}

function list(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

export interface Suspect extends ProcessFacts {
  /** GYM_EXEC_ID in its environment; undefined when it has none (or cleared it). */
  execId: string | undefined;
}

export interface Target {
  execId: string;
  /** Host pid of the command's first process, its process group. */
  leader: number;
  /** Start of the command in the same ticks as ProcessFacts.start; what is older is not its doing. */
  since: number;
  /** Only the command's own process group: services that an agent started on purpose go on. */
  groupOnly: boolean;
}

/**
 * Which of the sandbox's processes end with a command. Besides those that carry its id or sit in its group, a process
 * that cleared its environment and left the group is the command's when it began later and nobody else's.
 */
export function membersOf(target: Target, suspects: readonly Suspect[]): number[] {
  const byPid = new Map(suspects.map((one) => [one.pid, one]));
  const inherited = (one: Suspect): boolean => {
    for (let at: Suspect | undefined = one; at !== undefined; at = byPid.get(at.parent)) {
      if (at.start < target.since) return true;
    }
    return false;
  };
  return suspects.filter((one) => {
    if (one.group === target.leader || one.pid === target.leader) return true;
    if (target.groupOnly) return false;
    if (one.execId !== undefined) return one.execId === target.execId;
    return one.start >= target.since && !inherited(one);
  }).map((one) => one.pid);
}

/** The sandbox's processes with their exec ids. */
export function suspectsOf(init: number): Suspect[] {
  return descendants(init).map((one) => ({ ...one, execId: execIdOf(one.pid) }));
}

function execIdOf(pid: number): string | undefined {
  const environ = read(`/proc/${pid}/environ`);
  const found = environ?.split("\0").find((entry) => entry.startsWith(`${EXEC_ID}=`));
  return found?.slice(EXEC_ID.length + 1);
}

/** The host's pid of a process that the sandbox knows as `inner`: a child of `init`. */
export function hostPid(init: number, inner: number): number | undefined {
  return descendants(init).find((one) => innerPid(one.pid) === inner)?.pid;
}

function innerPid(pid: number): number | undefined {
  const line = read(`/proc/${pid}/status`)?.split("\n").find((line) => line.startsWith("NSpid:"));
  const last = line?.trim().split(/\s+/).at(-1);
  return last === undefined ? undefined : Number(last);
}

/** SIGKILL, and nothing said about those who are gone. */
export function killAll(pids: readonly number[]): void {
  for (const pid of pids) {
    try {
      process.kill(pid, "SIGKILL");
    } catch {
      // gone already
    }
  }
}

/** Resident pages of a process in KiB, shared ones counted whole: quick to read, never too small. */
export function residentKb(pid: number): number {
  return (Number(read(`/proc/${pid}/statm`)?.split(" ")[1] ?? 0) || 0) * 4;
}

/** Proportional set size of a process in KiB (what it really holds, shared pages split); 0 when it is gone. */
export function memoryKb(pid: number): number {
  const line = read(`/proc/${pid}/smaps_rollup`)?.split("\n").find((line) => line.startsWith("Pss:"));
  return line === undefined ? 0 : Number.parseInt(line.slice(4), 10) || 0;
}

function read(path: string): string | undefined {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return undefined;
  }
}
