/**
 * Files in and out of a sandbox through `/proc/PID/root`, without a process inside. The task owns that tree and may
 * change it at any moment, so no path is ever handed to the kernel whole: each folder is opened without following
 * links and the next name is looked up below its descriptor (`/proc/self/fd/N/name`), which is what openat does.
 * Symbolic links among the parents are resolved here, within the sandbox's root, as its own programs would see them.
 */
import * as fs from "node:fs";
import { join } from "node:path";
import { Buffer } from "node:buffer";
import { setImmediate } from "node:timers/promises";
import { errno, HarborError, messageOf } from "../lib/errors.ts";
import { Refusals } from "../lib/files/refusals.ts";
import { staysInside } from "../lib/files/tar.ts";
import { walkTree } from "../lib/files/tree.ts";
import type { Collected, DownloadLimits, DownloadReport, HostTree } from "../lib/sandbox/provider.ts";
import { globExpression } from "./_build_context.ts";

const { O_RDONLY, O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_DIRECTORY } = fs.constants;
const FOLDER = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;
const CHUNK = 1024 * 1024;
const MAX_LINKS = 40;

/** A path below an open folder. */
const below = (fd: number, name: string): string => `/proc/self/fd/${fd}/${name}`;

/** Something that is not as the caller needs it, said in words for the task's author. */
class Refused extends Error {}

/** What a symbolic link among a path's folders means to the one who asks. */
type Links =
  /** Resolved within the sandbox's root, as its own programs would. */
  | "follow"
  /** Nothing is read through it. */
  | "refuse"
  /** It gives way to a folder, as whatever else is no folder. */
  | "replace";

/** Links that systems are made of (`/bin -> usr/bin`), which are no task's trap: always followed. */
const SYSTEM_LINKS = /^\/(bin|sbin|lib|lib32|lib64|libx32|var\/run|var\/lock)$/;

/**
 * Opens a folder of the sandbox and hands its descriptor to `use`. With `make`, what is missing is created (mode 0755).
 * Throws node's errors with their codes, or Refused for a link that may not be followed.
 */
function inFolder<T>(
  root: string,
  path: string,
  how: { make: boolean; links: Links },
  use: (fd: number, names: readonly string[]) => T,
): T {
  const open: number[] = [fs.openSync(root, O_RDONLY | O_DIRECTORY)];
  const names: string[] = [];
  const enter = (name: string) => {
    open.push(fs.openSync(below(open.at(-1)!, name), FOLDER));
    names.push(name);
  };
  const create = (name: string) => {
    fs.mkdirSync(below(open.at(-1)!, name), { mode: 0o755 });
    enter(name);
    fs.fchmodSync(open.at(-1)!, 0o755); // whatever our umask is
  };
  try {
    let todo = path.split("/");
    let followed = 0;
    while (todo.length > 0) {
      const name = todo.shift()!;
      if (name === "" || name === ".") continue;
      if (name === "..") {
        if (open.length > 1) fs.closeSync(open.pop()!), names.pop();
        continue;
      }
      try {
        enter(name);
        continue;
      } catch (error) {
        if (errno(error) === "ENOENT" && how.make) {
          create(name);
          continue;
        }
        if (errno(error) !== "ELOOP" && errno(error) !== "ENOTDIR") throw error;
      }
      const at = below(open.at(-1)!, name);
      const isLink = fs.lstatSync(at).isSymbolicLink();
      const system = isLink && SYSTEM_LINKS.test(["", ...names, name].join("/"));
      if (how.links === "replace" && !system) {
        fs.unlinkSync(at);
        create(name);
        continue;
      }
      if (!isLink) throw Object.assign(new Error(`${name} is not a folder`), { code: "ENOTDIR" });
      if (how.links === "refuse" && !system) throw new Refused("behind a symbolic link");
      if (++followed > MAX_LINKS) throw Object.assign(new Error("too many symbolic links"), { code: "ELOOP" });
      const target = fs.readlinkSync(at);
      if (target.startsWith("/")) {
        for (const fd of open.splice(1)) fs.closeSync(fd);
        names.length = 0;
      }
      todo = [...target.split("/"), ...todo];
    }
    return use(open.at(-1)!, names);
  } finally {
    for (const fd of open) fs.closeSync(fd);
  }
}

const REPLACE = { make: true, links: "replace" } as const;
const REFUSE = { make: false, links: "refuse" } as const;

const split = (path: string): [folder: string, name: string] => {
  const clean = path.replace(/\/+$/, "");
  return [clean.slice(0, clean.lastIndexOf("/")) || "/", clean.slice(clean.lastIndexOf("/") + 1)];
};

/** Reads one small regular file. Never throws for what a task may have planted. Throws node's EACCES. */
export function collectFile(root: string, path: string, maxBytes: number): Collected {
  try {
    const [folder, name] = split(path);
    const data = inFolder(root, folder, REFUSE, (fd) => readRegular(below(fd, name), maxBytes));
    return { kind: "file", data: new Uint8Array(data) };
  } catch (error) {
    if (error instanceof Refused) return { kind: "refused", reason: error.message };
    const code = errno(error);
    if (code === "ENOENT" || code === "ENOTDIR") return { kind: "absent" };
    if (code === "EACCES" || code === "EPERM") throw error;
    return { kind: "refused", reason: messageOf(error) };
  }
}

function readRegular(path: string, maxBytes: number): Buffer {
  const seen = fs.lstatSync(path);
  if (seen.isSymbolicLink()) throw new Refused("a symbolic link");
  if (!seen.isFile()) throw new Refused("not a regular file");
  const fd = fs.openSync(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  try {
    const stat = fs.fstatSync(fd);
    if (!stat.isFile()) throw new Refused("not a regular file");
    if (stat.size > maxBytes) throw new Refused(`larger than ${maxBytes} bytes`);
    const data = Buffer.alloc(Math.min(maxBytes, Math.max(stat.size, 4096)) + 1); // one more shows that it grew meanwhile
    let length = 0;
    for (;;) {
      const read = fs.readSync(fd, data, length, data.length - length, null);
      if (read === 0) break;
      length += read;
      if (length > maxBytes) throw new Refused(`larger than ${maxBytes} bytes`);
      if (length === data.length) break;
    }
    return data.subarray(0, length);
  } finally {
    fs.closeSync(fd);
  }
}

/** Puts a tree of this machine into the sandbox, as its root. Throws "transfer.failed"; node's EACCES passes. */
export async function putTree(root: string, tree: HostTree): Promise<void> {
  try {
    fs.statSync(tree.from);
    inFolder(root, tree.to, REPLACE, () => {});
    const executable = new Set(tree.executable ?? []);
    for (const path of tree.only === undefined ? pathsBelow(tree.from) : tree.only) {
      const source = join(tree.from, path);
      const stat = fs.lstatSync(source);
      const target = join(tree.to, path);
      if (stat.isDirectory()) {
        inFolder(root, target, REPLACE, (fd) => fs.fchmodSync(fd, stat.mode & 0o7777));
      } else if (stat.isSymbolicLink()) {
        place(root, target, (at) => fs.symlinkSync(fs.readlinkSync(source), at));
      } else if (stat.isFile()) {
        const mode = (stat.mode & 0o7777) | (executable.has(path) ? 0o111 : 0);
        await putFile(root, target, source, mode, stat.mtime);
      }
    }
    for (const [path, { data, mode }] of Object.entries(tree.extra ?? {})) {
      const fd = create(root, join(tree.to, path));
      try {
        writeAll(fd, typeof data === "string" ? Buffer.from(data) : data);
        fs.fchmodSync(fd, mode ?? 0o644);
      } finally {
        fs.closeSync(fd);
      }
    }
  } catch (cause) {
    if (cause instanceof HarborError || errno(cause) === "EACCES") throw cause;
    throw new HarborError("transfer.failed", `Cannot carry ${tree.from} to ${tree.to}: ${messageOf(cause)}`, { cause });
  }
}

function pathsBelow(folder: string): string[] {
  const paths: string[] = [];
  walkTree(folder, ({ path }) => void paths.push(path));
  return paths;
}

async function putFile(root: string, target: string, source: string, mode: number, mtime: Date): Promise<void> {
  const from = fs.openSync(source, O_RDONLY);
  try {
    const to = create(root, target);
    try {
      const chunk = Buffer.allocUnsafe(Math.min(CHUNK, Math.max(1, fs.fstatSync(from).size)));
      for (let chunks = 0;; chunks++) {
        const length = fs.readSync(from, chunk, 0, chunk.length, null);
        if (length === 0) break;
        writeAll(to, chunk.subarray(0, length));
        if (chunks % 8 === 7) await setImmediate(); // a large file must not hold up other episodes
      }
      fs.fchmodSync(to, mode);
      fs.futimesSync(to, mtime, mtime);
    } finally {
      fs.closeSync(to);
    }
  } finally {
    fs.closeSync(from);
  }
}

function writeAll(fd: number, data: Uint8Array): void {
  for (let at = 0; at < data.length;) at += fs.writeSync(fd, data, at, data.length - at);
}

/** Creates a file anew, whatever stood at its name. */
function create(root: string, path: string): number {
  return place(root, path, (at) => fs.openSync(at, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600));
}

function place<T>(root: string, path: string, make: (at: string) => T): T {
  const [folder, name] = split(path);
  return inFolder(root, folder, REPLACE, (fd) => {
    try {
      return make(below(fd, name));
    } catch (error) {
      if (errno(error) !== "EEXIST") throw error;
      fs.unlinkSync(below(fd, name));
      return make(below(fd, name));
    }
  });
}

/** Copies a folder out of the sandbox into `to`, which exists and is ours. Throws "transfer.failed"; node's EACCES passes. */
export async function download(
  root: string,
  from: string,
  to: string,
  limits: DownloadLimits,
): Promise<DownloadReport> {
  const out = new Outgoing(to, limits);
  try {
    // The folder stays open while we wait between large files, so it is opened here and not handed to a callback.
    const held = inFolder(
      root,
      from,
      REFUSE,
      (fd) => fs.openSync(`/proc/self/fd/${fd}`, O_RDONLY | O_DIRECTORY),
    );
    try {
      await out.take(held, "");
    } finally {
      fs.closeSync(held);
    }
  } catch (cause) {
    const code = errno(cause);
    if (cause instanceof Refused) out.refuse(from, cause.message);
    if (cause instanceof Refused || code === "ENOENT" || code === "ENOTDIR") return out.report();
    if (cause instanceof HarborError || code === "EACCES") throw cause;
    throw new HarborError("transfer.failed", `Cannot bring ${from} out of the sandbox: ${messageOf(cause)}`, { cause });
  }
  out.makeLinks();
  return out.report();
}

class Outgoing {
  #files = 0;
  #bytes = 0;
  #entries = 0;
  #refusals = new Refusals();
  #links = new Map<string, string>();

  constructor(private readonly to: string, private readonly limits: DownloadLimits) {}

  async take(folder: number, prefix: string): Promise<void> {
    for (const name of fs.readdirSync(`/proc/self/fd/${folder}`).sort()) {
      const path = prefix === "" ? name : `${prefix}/${name}`;
      if (++this.#entries > this.limits.maxEntries) {
        return this.refuse(path, `more than ${this.limits.maxEntries} entries`);
      }
      try {
        await this.#one(folder, name, path);
      } catch (error) {
        this.#refuseOrThrow(path, error);
      }
    }
  }

  async #one(folder: number, name: string, path: string): Promise<void> {
    const at = below(folder, name);
    const stat = fs.lstatSync(at);
    if (stat.isSymbolicLink()) return void this.#links.set(path, fs.readlinkSync(at));
    if (stat.isDirectory()) {
      const fd = fs.openSync(at, FOLDER);
      try {
        this.#here(path, (full) => fs.mkdirSync(full, { recursive: true }));
        return await this.take(fd, path);
      } finally {
        fs.closeSync(fd);
      }
    }
    if (!stat.isFile()) {
      throw new Refused(`it is a ${stat.isFIFO() ? "FIFO" : stat.isSocket() ? "socket" : "device"}`);
    }
    if (this.#bytes + stat.size > this.limits.maxBytes) {
      throw new Refused(`its ${stat.size} bytes go over the limit of ${this.limits.maxBytes}`);
    }
    const source = fs.openSync(at, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    try {
      if (!fs.fstatSync(source).isFile()) throw new Refused("not a regular file any more");
      const target = this.#here(path, (full) => {
        fs.rmSync(full, { force: true, recursive: true });
        return fs.openSync(full, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, (stat.mode & 0o777) | 0o600);
      });
      try {
        const chunk = Buffer.allocUnsafe(Math.min(CHUNK, Math.max(1, stat.size)));
        // Never more than was counted above, also when the file grows meanwhile.
        for (let left = stat.size, chunks = 1; left > 0; chunks++) {
          const length = fs.readSync(source, chunk, 0, Math.min(left, chunk.length), null);
          if (length === 0) break;
          this.#here(path, () => writeAll(target, chunk.subarray(0, length)));
          left -= length;
          this.#bytes += length;
          if (chunks % 8 === 0) await setImmediate();
        }
        this.#files++;
      } finally {
        fs.closeSync(target);
      }
    } finally {
      fs.closeSync(source);
    }
  }

  makeLinks(): void {
    for (const [path, target] of this.#links) {
      if (target === "" || !staysInside(path, target, this.#links)) {
        this.refuse(path, `a symbolic link out of the folder (${target})`);
        continue;
      }
      try {
        this.#here(path, (full) => {
          fs.rmSync(full, { force: true, recursive: true });
          fs.symlinkSync(target, full);
        });
        this.#files++;
      } catch (error) {
        this.#refuseOrThrow(path, error);
      }
    }
  }

  /** What the task did, at this very moment maybe, costs the entry only. */
  #refuseOrThrow(path: string, error: unknown): void {
    const code = errno(error) ?? "";
    if (error instanceof Refused) this.refuse(path, error.message);
    else if (error instanceof HarborError) throw error;
    else if (code === "ENOENT") this.refuse(path, "gone while it was copied, or its name is not UTF-8");
    else if (["ELOOP", "ENOTDIR", "ENXIO"].includes(code)) this.refuse(path, "changed while it was copied");
    else throw error;
  }

  /** A write on this machine's side: its failure is ours, save for names that do not fit below our folder. */
  #here<T>(path: string, write: (full: string) => T): T {
    const full = join(this.to, path);
    try {
      return write(full);
    } catch (cause) {
      if (errno(cause) === "ENAMETOOLONG") throw new Refused("its name is too long for this machine");
      throw new HarborError("transfer.failed", `Cannot write ${full}: ${messageOf(cause)}`, { cause });
    }
  }

  refuse(path: string, reason: string): void {
    this.#refusals.add(path, reason);
  }

  report(): DownloadReport {
    return { files: this.#files, bytes: this.#bytes, refused: this.#refusals.list() };
  }
}

/**
 * Makes a folder with its parents, as root: the working directory of a task. Links among the parents are followed as the
 * sandbox's programs would. Returns the paths of new folders, parents first.
 */
export function makeFolder(root: string, path: string): string[] {
  if (isFolder(root, path)) return [];
  const parts = path.split("/").filter((part) => part !== "" && part !== ".");
  const paths = parts.map((_, at) => `/${parts.slice(0, at + 1).join("/")}`);
  const made = paths.filter((one) => !isFolder(root, one));
  inFolder(root, path, { make: true, links: "follow" }, () => {});
  return made;
}

/** Whether a folder stands at `path`, links followed as the sandbox's programs would. */
export function isFolder(root: string, path: string): boolean {
  try {
    inFolder(root, path, { make: false, links: "follow" }, () => {});
    return true;
  } catch (error) {
    if (["ENOENT", "ENOTDIR", "ELOOP"].includes(errno(error) ?? "")) return false;
    throw error;
  }
}

export interface FoundInside {
  /** Below the jail, links resolved: `/usr/lib/x`. */
  path: string;
  /** Its last name as it was asked for. */
  name: string;
  /** Names in it, sorted, when it is a folder. */
  children?: string[];
}

/**
 * What a path means below the folder `jail` of the sandbox, with that as the root folder: links are resolved there, and
 * `*`, `?` and `[…]` match names. Sorted; none for what is not there.
 */
export function findInside(root: string, jail: string, pattern: string): FoundInside[] {
  return inFolder(root, jail, { make: false, links: "refuse" }, (fd) => {
    const inner = `/proc/self/fd/${fd}`;
    let paths = [""];
    for (const part of pattern.split("/").filter((one) => one !== "")) {
      if (!/[*?[]/.test(part)) paths = paths.map((path) => `${path}/${part}`);
      else paths = paths.flatMap((path) => namesLike(inner, path, part).map((name) => `${path}/${name}`));
    }
    return paths.flatMap((path) => realInside(inner, path, 0) ?? []);
  });
}

function namesLike(root: string, folder: string, pattern: string): string[] {
  const test = globExpression(pattern);
  const children = realInside(root, folder, 0)?.children ?? [];
  return children.filter((name) => test.test(name) && (pattern.startsWith(".") || !name.startsWith(".")));
}

function realInside(root: string, path: string, followed: number): FoundInside | undefined {
  const name = path.slice(path.lastIndexOf("/") + 1);
  const follow = { make: false, links: "follow" } as const;
  try {
    return inFolder(root, path, follow, (fd, names) => ({
      path: `/${names.join("/")}`,
      name,
      children: fs.readdirSync(`/proc/self/fd/${fd}`).sort(),
    }));
  } catch (error) {
    if (!["ENOENT", "ENOTDIR", "ELOOP"].includes(errno(error) ?? "")) throw error;
  }
  const [folder, last] = split(path);
  try {
    return inFolder(root, folder, follow, (fd, names) => {
      const stat = fs.lstatSync(below(fd, last));
      const here = [...names, last].join("/");
      if (!stat.isSymbolicLink()) return { path: `/${here}`, name };
      const target = fs.readlinkSync(below(fd, last));
      const next = target.startsWith("/") ? target : `/${[...names, target].join("/")}`;
      const found = followed < MAX_LINKS ? realInside(root, next, followed + 1) : undefined;
      return found && { ...found, name };
    });
  } catch (error) {
    if (["ENOENT", "ENOTDIR", "ELOOP"].includes(errno(error) ?? "")) return undefined;
    throw error;
  }
}
