/**
 * What every sandbox needs of a machine, whatever the engine: disk, limits, temp folder, a HOME that is local. The
 * findings are a pure function of the facts; `machineFacts()` reads them and never throws.
 */
import { accessSync, constants, readFileSync } from "node:fs";
import { statfs } from "node:fs/promises";
import type { Missing } from "./provider.ts";

export interface MachineFacts {
  /** Folders that runs write to, each with the file system below it. */
  folders: FolderFacts[];
  /** Soft limits (`ulimit -n`, `ulimit -u`); null where unknown, Infinity for unlimited. */
  openFiles: number | null;
  processes: number | null;
}

export interface FolderFacts {
  /** What it is to us: `temp folder`, `working folder`, `HOME`. */
  role: string;
  /** The variable or option that moves it elsewhere. */
  moveBy: string;
  path: string;
  writable: boolean;
  /** Bytes an ordinary user may still write; null where unknown. */
  freeBytes: number | null;
  /** File system type as /proc/self/mountinfo names it; null where unknown. */
  fileSystem: string | null;
  noexec: boolean;
}

const GIB = 2 ** 30;
/** File systems on which overlay mounts, locks or sockets misbehave, as /proc/self/mountinfo spells them. */
const NETWORKED = /^(nfs\d?|lustre|gpfs|beegfs(_nodev)?|cifs|smb3?|ceph|fuse\.(sshfs|glusterfs|ceph))$/;

/** What is worth mending, each with the setting that mends it. */
export function machineFindings(facts: MachineFacts): Missing[] {
  const found: Missing[] = [];
  for (const { role, moveBy, path, writable, freeBytes, fileSystem, noexec } of facts.folders) {
    if (!writable && role !== "HOME") found.push({ what: `${role} ${path} cannot be written`, fix: moveBy });
    if (freeBytes !== null && freeBytes < GIB && role !== "HOME") {
      const mib = Math.floor(freeBytes / 2 ** 20);
      found.push({ what: `${role} ${path} has ${mib} MiB left`, fix: `free some space, or ${moveBy}` });
    }
    if (fileSystem !== null && NETWORKED.test(fileSystem)) {
      found.push({
        what: `${role} ${path} is on ${fileSystem}, a network file system`,
        fix: role === "HOME" ? "give rootless engines storage on a local disk (storage.conf: graphroot)" : moveBy,
      });
    }
    if (noexec && role === "temp folder") {
      found.push({ what: `${role} ${path} is mounted noexec`, fix: `${moveBy} without noexec` });
    }
  }
  if (facts.openFiles !== null && facts.openFiles < 1024) {
    found.push({ what: `only ${facts.openFiles} open files are allowed`, fix: "ulimit -n 4096 (limits.conf: nofile)" });
  }
  if (facts.processes !== null && facts.processes < 512) {
    found.push({ what: `only ${facts.processes} processes are allowed`, fix: "ulimit -u 4096 (limits.conf: nproc)" });
  }
  return found;
}

/** The facts of this machine. */
export async function machineFacts(
  env: Readonly<Record<string, string | undefined>>,
  cwd: string,
): Promise<MachineFacts> {
  const mountinfo = text("/proc/self/mountinfo");
  const limits = text("/proc/self/limits");
  const folders = [
    { role: "temp folder", moveBy: "set TMPDIR to a folder on a local disk", path: env.TMPDIR || "/tmp" },
    { role: "working folder", moveBy: "write results elsewhere with --output", path: cwd },
    ...(env.HOME ? [{ role: "HOME", moveBy: "set HOME", path: env.HOME }] : []),
  ];
  return {
    folders: await Promise.all(folders.map(async (folder) => ({
      ...folder,
      writable: writable(folder.path),
      freeBytes: await free(folder.path),
      ...mountOf(folder.path, mountinfo),
    }))),
    openFiles: limitOf("Max open files", limits),
    processes: limitOf("Max processes", limits),
  };
}

/** The file system that holds `path`: the longest mount point above it; of equal ones the last is on top (proc(5)). */
export function mountOf(path: string, mountinfo: string): { fileSystem: string | null; noexec: boolean } {
  let best: { point: string; fileSystem: string; noexec: boolean } | undefined;
  for (const line of mountinfo.split("\n")) {
    const [before, after] = line.split(" - ");
    const fields = before!.split(" ");
    if (after === undefined || fields.length < 6) continue;
    const point = fields[4]!.replace(/\\([0-7]{3})/g, (_, code) => String.fromCharCode(parseInt(code, 8)));
    const above = point === "/" || path === point || path.startsWith(`${point}/`);
    if (!above || (best !== undefined && point.length < best.point.length)) continue;
    best = { point, fileSystem: after.split(" ")[0]!, noexec: fields[5]!.split(",").includes("noexec") };
  }
  return { fileSystem: best?.fileSystem ?? null, noexec: best?.noexec ?? false };
}

/** A soft limit by its name in /proc/PID/limits. */
export function limitOf(name: string, limits: string): number | null {
  const soft = limits.split("\n").find((line) => line.startsWith(name))?.slice(name.length).trim().split(/\s+/)[0];
  return soft === undefined ? null : soft === "unlimited" ? Infinity : Number(soft);
}

function text(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

function writable(path: string): boolean {
  try {
    accessSync(path, constants.W_OK | constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

async function free(path: string): Promise<number | null> {
  try {
    const { bavail, bsize } = await statfs(path);
    return bavail * bsize;
  } catch {
    return null;
  }
}
