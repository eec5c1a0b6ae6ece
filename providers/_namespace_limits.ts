/**
 * Limits of a sandbox on this machine: control groups below our own where they may be written (version 1 as root,
 * version 2 where delegated), so that a batch system's limits on us go on holding for what we start. Where they may
 * not, CPUs are held by affinity, processes by rlimit, and memory is watched from outside.
 */
import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  writeFileSync,
} from "node:fs";
import { writeFile } from "node:fs/promises";
import { hostname } from "node:os";
import { dirname, join } from "node:path";
import { crossing, errno } from "../lib/errors.ts";
import type { Clock } from "../lib/runtime/clock.ts";
import { isAlive, type Owner } from "../lib/sandbox/owner.ts";
import type { Limits } from "../lib/sandbox/provider.ts";

/** Processes of one sandbox, whatever the task asks: a fork bomb must not fill the pid table of the machine. */
export const MAX_PROCESSES = 4096;

const MOUNT = "/sys/fs/cgroup";
const CPU_PERIOD_US = 100_000;

export interface Groups {
  /**
   * Moves the sandbox's first process in, from outside and while it still mounts: the kernel waits some 10 ms for a
   * grace period there, which costs no CPU. Throws "sandbox.failed".
   */
  enter(pid: number): Promise<void>;
  holds: { memory: boolean; pids: boolean; cpu: boolean };
  /** Kills of the kernel's OOM killer inside so far; null when no counter can be read. */
  oomKills(): number | null;
  /** Folders of the groups. */
  folders: string[];
}

/** Lines of /proc/self/cgroup (cgroups(7)): controller → our group; "" is version 2. */
export function parseCgroups(text: string): Map<string, string> {
  const groups = new Map<string, string>();
  for (const line of text.split("\n")) {
    const match = /^\d+:([^:]*):(.*)$/.exec(line);
    if (match === null) continue;
    for (const controller of match[1]!.split(",")) groups.set(controller, match[2]!);
  }
  return groups;
}

/** Makes the groups `name` that `limits` need. Never throws: what cannot be had does not hold. */
export function makeGroups(name: string, limits: Limits, maxProcesses: number): Groups {
  const ours = ownGroups();
  return existsSync(join(MOUNT, "cgroup.controllers"))
    ? version2(ours.get("") ?? "/", name, limits, maxProcesses)
    : version1(ours, name, limits, maxProcesses);
}

function version1(ours: ReadonlyMap<string, string>, name: string, limits: Limits, maxProcesses: number): Groups {
  const made: string[] = [];
  const group = (controller: string, settings: Record<string, string>): string | undefined => {
    const own = ours.get(controller);
    const parent = own === undefined ? undefined : join(MOUNT, controller, own);
    if (parent === undefined || !existsSync(parent)) return undefined;
    return makeGroup(join(parent, name), settings, made) ? join(parent, name) : undefined;
  };
  const { memoryMb, cpus } = limits;
  const pids = group("pids", { "pids.max": String(maxProcesses) });
  const memory = memoryMb === undefined
    ? undefined
    : group("memory", { "memory.limit_in_bytes": String(memoryMb * 1024 * 1024) });
  const cpu = cpus === undefined ? undefined : group("cpu", {
    "cpu.cfs_period_us": String(CPU_PERIOD_US),
    "cpu.cfs_quota_us": String(Math.max(1000, Math.round(cpus * CPU_PERIOD_US))),
  });
  if (memory !== undefined) {
    // No swap either, as `docker run --memory-swap` of the same size; absent where swap is not accounted.
    write(join(memory, "memory.memsw.limit_in_bytes"), String(memoryMb! * 1024 * 1024));
  }
  return {
    enter: (pid) => enterAll(made, pid),
    holds: { memory: memory !== undefined, pids: pids !== undefined, cpu: cpu !== undefined },
    oomKills: () => (memory === undefined ? null : counter(join(memory, "memory.oom_control"), "oom_kill")),
    folders: made,
  };
}

function version2(own: string, name: string, limits: Limits, maxProcesses: number): Groups {
  const wanted = [
    "pids",
    ...(limits.memoryMb === undefined ? [] : ["memory"]),
    ...(limits.cpus === undefined ? [] : ["cpu"]),
  ];
  const made: string[] = [];
  // A group with processes in it cannot hand controllers down, so the nearest ancestor that does is the parent.
  for (let parent = join(MOUNT, own); parent.startsWith(MOUNT); parent = dirname(parent)) {
    const given = new Set(readWords(join(parent, "cgroup.subtree_control")));
    if (!wanted.every((controller) => given.has(controller))) continue;
    const settings: Record<string, string> = { "pids.max": String(maxProcesses) };
    if (limits.memoryMb !== undefined) settings["memory.max"] = String(limits.memoryMb * 1024 * 1024);
    if (limits.cpus !== undefined) {
      settings["cpu.max"] = `${Math.max(1000, Math.round(limits.cpus * CPU_PERIOD_US))} ${CPU_PERIOD_US}`;
    }
    const folder = join(parent, name);
    if (!makeGroup(folder, settings, made)) break;
    if (limits.memoryMb !== undefined) write(join(folder, "memory.swap.max"), "0");
    return {
      enter: (pid) => enterAll(made, pid),
      holds: { memory: limits.memoryMb !== undefined, pids: true, cpu: limits.cpus !== undefined },
      oomKills: () => counter(join(folder, "memory.events"), "oom_kill"),
      folders: made,
    };
  }
  return {
    enter: () => Promise.resolve(),
    holds: { memory: false, pids: false, cpu: false },
    oomKills: () => null,
    folders: [],
  };
}

function makeGroup(folder: string, settings: Record<string, string>, made: string[]): boolean {
  try {
    mkdirSync(folder);
  } catch {
    return false;
  }
  if (Object.entries(settings).every(([file, value]) => write(join(folder, file), value)) && canMoveInto(folder)) {
    made.push(folder);
    return true;
  }
  removeAll([folder]);
  return false;
}

/** A process may be moved by who may write the list of the group above both its old and its new one (cgroups(7)). */
function canMoveInto(folder: string): boolean {
  try {
    accessSync(join(folder, "cgroup.procs"), constants.W_OK);
    accessSync(join(dirname(folder), "cgroup.procs"), constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

async function enterAll(folders: readonly string[], pid: number): Promise<void> {
  for (const folder of folders) {
    await crossing(
      "sandbox.failed",
      `Cannot limit the sandbox by ${folder}`,
      () => writeFile(join(folder, "cgroup.procs"), String(pid)),
    );
  }
}

function write(path: string, value: string): boolean {
  try {
    writeFileSync(path, value);
    return true;
  } catch {
    return false;
  }
}

function readWords(path: string): string[] {
  try {
    return readFileSync(path, "latin1").trim().split(/\s+/);
  } catch {
    return [];
  }
}

function counter(path: string, name: string): number | null {
  try {
    const line = readFileSync(path, "latin1").split("\n").find((line) => line.startsWith(`${name} `));
    return line === undefined ? null : Number(line.slice(name.length + 1));
  } catch {
    return null;
  }
}

/** A name that says whose it is: a group may be all that a killed run left. */
export function groupName({ pid, start, run }: Owner, serial: string): string {
  return `gym-harbor-${pid}.${start}-${run}-${serial}`;
}

const GROUP = /^gym-harbor-(\d+)\.(\d*)-([a-z0-9]{8})-/;

/** Removes the groups of dead owners that hold no process any more. */
export function sweepGroups(run: string | undefined): void {
  for (const parent of parents()) {
    for (const name of namesIn(parent)) {
      const [, pid, start, of] = GROUP.exec(name) ?? [];
      if (pid === undefined || (run !== undefined && of !== run)) continue;
      if (isAlive({ host: hostname(), pid: Number(pid), start: start! }) === false) removeAll([join(parent, name)]);
    }
  }
}

/** Where groups of ours can lie. */
function parents(): string[] {
  const ours = ownGroups();
  const found = ["pids", "memory", "cpu"].flatMap((controller) => {
    const own = ours.get(controller);
    return own === undefined ? [] : [join(MOUNT, controller, own)];
  });
  for (let at = join(MOUNT, ours.get("") ?? "/"); at.startsWith(MOUNT); at = dirname(at)) found.push(at);
  return found;
}

function ownGroups(): Map<string, string> {
  try {
    return parseCgroups(readFileSync("/proc/self/cgroup", "latin1"));
  } catch {
    return new Map();
  }
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

/** How long a killed process may take to leave its group. */
const LEAVING_MS = 2000;

/** Removes groups as soon as their last process is gone. */
export async function removeGroups(folders: readonly string[], clock: Pick<Clock, "sleep">): Promise<void> {
  for (let waitedMs = 0; !removeAll(folders) && waitedMs < LEAVING_MS; waitedMs += 5) await clock.sleep(5);
}

/** The same without giving way, for the last moments of a process. */
export function removeGroupsNow(folders: readonly string[]): void {
  const cell = new Int32Array(new SharedArrayBuffer(4));
  for (let waitedMs = 0; !removeAll(folders) && waitedMs < LEAVING_MS; waitedMs += 5) Atomics.wait(cell, 0, 0, 5);
}

/** Whether all are gone. */
function removeAll(folders: readonly string[]): boolean {
  let gone = true;
  for (const folder of folders) {
    try {
      rmdirSync(folder);
    } catch (error) {
      gone &&= errno(error) === "ENOENT";
    }
  }
  return gone;
}
