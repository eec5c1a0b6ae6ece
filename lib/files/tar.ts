/**
 * Folders as one tar stream, into a sandbox and out of it. No program named tar is needed on this machine.
 *
 * Packing keeps modes, times and links as they are, gives everything to root, and waits for a slow reader. Unpacking
 * trusts nothing: what an archive made by a task says about paths, links and devices is checked before anything is
 * created, links are made last so that no entry can go through one, and what was left out is reported by reason.
 */
import { constants, createReadStream, type Stats } from "node:fs";
import { link, lstat, mkdir, open, readFile, readlink, rm, symlink } from "node:fs/promises";
import { dirname, join, posix } from "node:path";
import { pipeline } from "node:stream/promises";
import type { Readable, Writable } from "node:stream";
import { Buffer } from "node:buffer";
import * as tar from "tar-stream";
import { errno, HarborError, messageOf } from "../errors.ts";
import { reasonOf } from "./reason.ts";
import { Refusals } from "./refusals.ts";
import { walkTree } from "./tree.ts";

/** A folder of this machine, as it is to appear in the sandbox. */
export interface HostTree {
  /** Absolute folder on this machine. */
  from: string;
  /** Absolute folder in the sandbox; made when missing, as root. A symbolic link planted there is replaced, not followed. */
  to: string;
  /** Relative POSIX paths to carry; undefined carries all regular files, links and folders below `from`. */
  only?: string[];
  /** Extra files written over the tree: relative path → content and mode (octal, default 0644). */
  extra?: Record<string, { data: string | Uint8Array; mode?: number }>;
  /** Mode bits added to every file (for scripts that must be executable), by relative path. */
  executable?: string[];
}

export interface DownloadLimits {
  maxEntries: number;
  maxBytes: number;
}

export interface DownloadReport {
  files: number;
  bytes: number;
  /** Entries left out with the reason: links out of the folder, devices, sockets, over the limits. */
  refused: { path: string; reason: string }[];
}

/** One thing to pack: where it lies here, or its bytes, and its path in the sandbox without the leading slash. */
interface Item {
  name: string;
  kind: "file" | "dir" | "link";
  source: { path: string; stats: Stats } | { data: Uint8Array; mode: number };
  addMode: number;
}

/** Trees whose contents are known: what an upload needs to hear beforehand, and the archive itself. */
export interface Archive {
  /** Absolute folders in the sandbox that must be real folders, no links, before the archive is unpacked; parents first. */
  readonly folders: string[];
  /** Bytes of all files. */
  readonly bytes: number;
  /** Writes the whole archive (names relative to `/`) and ends; does not close `to`. Throws "transfer.failed". */
  writeTo(to: Writable): Promise<void>;
}

const SMALL_BYTES = 1024 * 1024;

/** The part of tar-stream 3.2 that is used here; it ships no types. */
interface Header {
  name: string;
  type: string;
  mode: number;
  size: number;
  linkname: string | null;
  mtime: Date;
}
interface Pack extends Readable {
  entry(header: Partial<Header>, done: (error?: Error | null) => void): Writable;
  entry(header: Partial<Header>, data: Buffer, done: (error?: Error | null) => void): Writable;
  finalize(): void;
}
type Entry = AsyncIterable<Uint8Array> & { header: Header; resume(): void };
type Extract = Writable & AsyncIterable<Entry>;
const { pack, extract } = tar as unknown as { pack(): Pack; extract(): Extract };

/** Looks at the trees now, so that a missing folder is named before anything is sent. Throws "transfer.failed". */
export async function archiveOf(trees: readonly HostTree[]): Promise<Archive> {
  const items = new Map<string, Item>();
  const roots: string[] = [];
  for (const tree of trees) {
    const base = tree.to.replace(/^\/+|\/+$/g, "");
    roots.push(`/${base}`);
    for (const item of await itemsOf(tree, base)) items.set(item.name, item);
  }
  const list = [...items.values()];
  return {
    folders: [...roots, ...list.filter((item) => item.kind === "dir").map((item) => `/${item.name}`)],
    bytes: list.reduce((sum, { source }) => sum + ("data" in source ? source.data.length : source.stats.size), 0),
    writeTo: (to) => write(list, to),
  };
}

async function itemsOf(tree: HostTree, base: string): Promise<Item[]> {
  const under = (path: string) => (base === "" ? path : `${base}/${path}`);
  const executable = new Set(tree.executable ?? []);
  const paths = tree.only === undefined ? allBelow(tree.from) : withParents(tree.only);
  const items: Item[] = [];
  for (const path of paths) {
    const stats = await facing(join(tree.from, path), (full) => lstat(full));
    const kind = stats.isFile() ? "file" : stats.isDirectory() ? "dir" : stats.isSymbolicLink() ? "link" : undefined;
    if (kind === undefined) continue; // a socket or FIFO lying in a task folder means nothing to the task
    const addMode = executable.has(path) ? 0o111 : 0;
    items.push({ name: under(path), kind, source: { path: join(tree.from, path), stats }, addMode });
  }
  for (const [path, { data, mode }] of Object.entries(tree.extra ?? {})) {
    const bytes = typeof data === "string" ? Buffer.from(data) : data;
    items.push({ name: under(path), kind: "file", source: { data: bytes, mode: mode ?? 0o644 }, addMode: 0 });
  }
  return items;
}

function allBelow(folder: string): string[] {
  const paths: string[] = [];
  try {
    walkTree(folder, ({ path }) => void paths.push(path));
  } catch (cause) {
    throw new HarborError("transfer.failed", messageOf(cause), { cause });
  }
  return paths;
}

/** Named paths with the folders they lie in, each once, parents first. */
function withParents(only: readonly string[]): string[] {
  const paths = new Set<string>();
  for (const path of only) {
    const parts = path.split("/");
    for (let depth = 1; depth <= parts.length; depth++) paths.add(parts.slice(0, depth).join("/"));
  }
  return [...paths];
}

async function write(items: readonly Item[], to: Writable): Promise<void> {
  const archive = pack();
  archive.on("error", () => {}); // told by `sent` or by fill()
  const sent = pipeline(archive, to, { end: false });
  const fill = async () => {
    for (const item of items) await entry(archive, item);
    archive.finalize();
  };
  // Whichever fails first ends the other: a reader that left must not keep us waiting, nor a bad file the reader.
  await Promise.all([
    sent,
    fill().catch((cause: Error) => {
      archive.destroy(cause);
      throw cause;
    }),
  ]).catch((cause) => {
    throw cause instanceof HarborError
      ? cause
      : new HarborError("transfer.failed", `Cannot send files: ${messageOf(cause)}`, { cause });
  });
}

async function entry(archive: Pack, item: Item): Promise<void> {
  const { source, kind } = item;
  const name = shortName(archive, "L", item.name);
  const owner = { uid: 0, gid: 0, uname: "root", gname: "root" };
  if ("data" in source) {
    return await put(archive, { name, mode: source.mode, mtime: new Date(0), ...owner }, source.data);
  }
  const { path, stats } = source;
  const header = { name, mode: (stats.mode & 0o7777) | item.addMode, mtime: stats.mtime, ...owner };
  if (kind === "dir") return await put(archive, { ...header, type: "directory" });
  if (kind === "link") {
    const linkname = shortName(archive, "K", await facing(path, (full) => readlink(full)));
    return await put(archive, { ...header, type: "symlink", linkname });
  }
  if (stats.size <= SMALL_BYTES) {
    return await put(archive, header, await facing(path, (full) => readFile(full)));
  }
  const stream = new Promise<void>((done, fail) => {
    const into = archive.entry({ ...header, size: stats.size }, (error) => (error ? fail(error) : done()));
    into.on("error", fail);
    // Never more than was announced, also when the file grows meanwhile.
    createReadStream(path, { end: stats.size - 1 }).on("error", fail).pipe(into);
  });
  await facing(path, () => stream);
}

/**
 * A name that fits the header as it is, or a stand-in after a GNU long-name record ("L" for names, "K" for targets).
 * tar-stream would write pax records, which BusyBox 1.35 skips: it then makes files named PaxHeader.
 */
function shortName(archive: Pack, kind: "L" | "K", name: string): string {
  if (/^[\x20-\x7e]*$/.test(name) && name.length <= 100) return name;
  const data = Buffer.from(`${name}\0`);
  const block = Buffer.alloc(512);
  block.write("././@LongLink", 0);
  for (const [value, at, digits] of [[0, 100, 7], [0, 108, 7], [0, 116, 7], [data.length, 124, 11], [0, 136, 11]]) {
    block.write(value!.toString(8).padStart(digits!, "0"), at!);
  }
  block.write("        ", 148);
  block.write(kind, 156);
  block.write("ustar  \0", 257); // GNU's own magic
  block.write(`${block.reduce((sum, byte) => sum + byte, 0).toString(8).padStart(6, "0")}\0 `, 148);
  archive.push(Buffer.concat([block, data, Buffer.alloc((512 - data.length % 512) % 512)]));
  return "long-name";
}

/** Resolves when the archive has taken the entry, which is when its reader has room. */
function put(archive: Pack, header: Partial<Header>, data?: Uint8Array): Promise<void> {
  return new Promise((done, fail) => {
    const finished = (error?: Error | null) => (error ? fail(error) : done());
    if (data === undefined) archive.entry(header, finished);
    else archive.entry({ ...header, size: data.length }, Buffer.from(data), finished);
  });
}

async function facing<T>(path: string, step: (path: string) => Promise<T>): Promise<T> {
  try {
    return await step(path);
  } catch (cause) {
    if (cause instanceof HarborError) throw cause;
    throw new HarborError("transfer.failed", `Cannot read ${path}: ${reasonOf(cause)}`, { cause });
  }
}

/**
 * Unpacks an archive that a task may have made into `folder`, which exists and is ours. Reads `from` to its end, also
 * past a limit, so that a shared channel stays in step. Files become readable and writable for us whatever their mode.
 * Throws "transfer.failed" when this disk cannot take them or `from` is no tar archive; a cut-off end is reported.
 * `strip` is taken off the front of every name.
 */
export async function unpackInto(
  from: AsyncIterable<Uint8Array>,
  folder: string,
  limits: DownloadLimits,
  strip = "",
): Promise<DownloadReport> {
  const archive = extract();
  let sourceFailure: unknown;
  const fed = (async () => {
    let open = true;
    let wake = () => {};
    const closed = () => (open = false, wake());
    archive.on("drain", () => wake()).on("close", closed).on("error", closed);
    try {
      for await (const chunk of from) {
        if (open && !archive.write(chunk)) await new Promise<void>((room) => open ? (wake = room) : room());
      }
    } catch (error) {
      sourceFailure = error;
    }
    archive.end();
  })();
  const into = new Unpacking(folder, limits, strip);
  let fault: unknown;
  try {
    for await (const entry of archive) {
      await into.take(entry);
      entry.resume();
    }
  } catch (error) {
    fault = error;
  }
  await fed;
  if (sourceFailure !== undefined) throw sourceFailure;
  if (fault instanceof HarborError) throw fault;
  if (fault !== undefined) {
    if (!/unexpected end|destroyed/i.test(messageOf(fault))) {
      throw new HarborError("transfer.failed", `Cannot unpack into ${folder}: ${messageOf(fault)}`, { cause: fault });
    }
    into.refuse(into.last, "cut off: the archive ended early");
  }
  await into.makeLinks();
  return into.report();
}

class Unpacking {
  #files = 0;
  #bytes = 0;
  #entries = 0;
  #refusals = new Refusals();
  /** Path → target of every symbolic link seen; made at the end. */
  #links = new Map<string, string>();
  #made = new Set<string>();
  last = "";

  constructor(
    private readonly folder: string,
    private readonly limits: DownloadLimits,
    private readonly strip: string,
  ) {}

  async take(entry: Entry): Promise<void> {
    const { header } = entry;
    const path = cleanPath(this.#inner(header.name));
    this.last = header.name;
    if (path === ".") return;
    if (path === undefined) return this.refuse(header.name, "its path leads out of the folder");
    if (++this.#entries > this.limits.maxEntries) {
      return this.refuse(path, `more than ${this.limits.maxEntries} entries`);
    }
    if (this.#throughLink(path)) return this.refuse(path, "its path goes through a symbolic link");
    this.#links.delete(path);
    try {
      await this.#make(path, entry);
    } catch (cause) {
      const code = errno(cause);
      if (code === undefined || !/^E[A-Z]+$/.test(code)) throw cause;
      if (["ENOSPC", "EDQUOT", "EROFS", "EACCES", "EIO"].includes(code)) {
        const doing = `Cannot write ${join(this.folder, path)}`;
        throw new HarborError("transfer.failed", `${doing}: ${reasonOf(cause)}`, { cause });
      }
      this.refuse(path, code === "ENAMETOOLONG" ? "its name is too long for this machine" : messageOf(cause));
    }
  }

  async #make(path: string, entry: Entry): Promise<void> {
    const { header } = entry;
    switch (header.type) {
      case "file":
      case "contiguous-file":
        return await this.#file(path, entry);
      case "directory":
        return void (await mkdir(join(this.folder, path), { recursive: true }));
      case "symlink":
        return void this.#links.set(path, header.linkname ?? "");
      case "link":
        return await this.#hardLink(path, header.linkname ?? "");
      default:
        return this.refuse(path, `it is a ${KINDS[header.type] ?? header.type}`);
    }
  }

  async #file(path: string, entry: Entry): Promise<void> {
    if (this.#bytes + entry.header.size > this.limits.maxBytes) {
      return this.refuse(path, `its ${entry.header.size} bytes go over the limit of ${this.limits.maxBytes}`);
    }
    const full = join(this.folder, path);
    await mkdir(dirname(full), { recursive: true });
    await rm(full, { force: true }); // a later entry of the same name wins, as with tar
    const flags = constants.O_CREAT | constants.O_EXCL | constants.O_WRONLY | constants.O_NOFOLLOW;
    const file = await open(full, flags, (entry.header.mode & 0o777) | 0o600);
    let written = 0;
    try {
      for await (const chunk of entry) {
        await file.writeFile(chunk);
        written += chunk.length;
      }
    } finally {
      await file.close();
      if (written < entry.header.size) await rm(full, { force: true });
    }
    this.#made.add(path);
    this.#files++;
    this.#bytes += written;
  }

  /** Only to a file that this archive brought, so that nothing of ours gains a second name. */
  async #hardLink(path: string, target: string): Promise<void> {
    const source = cleanPath(this.#inner(target));
    if (source === undefined || !this.#made.has(source)) {
      return this.refuse(path, "a hard link to a file that did not come along");
    }
    const full = join(this.folder, path);
    await mkdir(dirname(full), { recursive: true });
    if (source === path) return;
    await rm(full, { force: true });
    await link(join(this.folder, source), full);
    this.#made.add(path);
    this.#files++;
  }

  #inner(name: string): string {
    if (!name.startsWith(this.strip)) return name === this.strip.slice(0, -1) ? "." : name;
    return name.slice(this.strip.length) || ".";
  }

  #throughLink(path: string): boolean {
    for (let at = path.lastIndexOf("/"); at > 0; at = path.lastIndexOf("/", at - 1)) {
      if (this.#links.has(path.slice(0, at))) return true;
    }
    return false;
  }

  /** Links whose target stays inside, judged by where the links seen would really lead. */
  async makeLinks(): Promise<void> {
    for (const [path, target] of this.#links) {
      if (target === "" || !staysInside(path, target, this.#links)) {
        this.refuse(path, `a symbolic link out of the folder (${target})`);
        continue;
      }
      try {
        await mkdir(dirname(join(this.folder, path)), { recursive: true });
        await rm(join(this.folder, path), { force: true });
        await symlink(target, join(this.folder, path));
        this.#files++;
      } catch (cause) {
        this.refuse(path, messageOf(cause));
      }
    }
  }

  refuse(path: string, reason: string): void {
    this.#refusals.add(path, reason);
  }

  report(): DownloadReport {
    return { files: this.#files, bytes: this.#bytes, refused: this.#refusals.list() };
  }
}

const KINDS: Record<string, string> = {
  "character-device": "device",
  "block-device": "device",
  fifo: "FIFO",
};

/** A relative path without `.`, `..` and empty parts; "." for the folder itself; undefined when it leads out. */
function cleanPath(name: string): string | undefined {
  if (name.startsWith("/") || name.includes("\0") || name.split("/").includes("..")) return undefined;
  return posix.normalize(name).replace(/\/$/, "") || ".";
}

/** Follows a link's target step by step through the links seen so far; false as soon as it would leave the folder. */
export function staysInside(path: string, target: string, links: ReadonlyMap<string, string>): boolean {
  let todo = [...dirname(path).split("/"), ...target.split("/")];
  if (target.startsWith("/")) return false;
  const at: string[] = [];
  for (let hops = 0; todo.length > 0;) {
    const part = todo.shift()!;
    if (part === "" || part === ".") continue;
    if (part === "..") {
      if (at.pop() === undefined) return false;
      continue;
    }
    at.push(part);
    const onward = links.get(at.join("/"));
    if (onward === undefined || todo.length === 0) continue;
    if (onward.startsWith("/") || ++hops > 40) return false;
    at.pop();
    todo = [...onward.split("/"), ...todo];
  }
  return true;
}
