/**
 * Writes the entries of one layer into a folder that is empty at first, or of layer after layer into one folder (`flat`).
 *
 * Nothing is written through a link that leaves the layer: only folders made here are ever written into, and a link
 * among a name's folders is followed by our own table, from the layer's top, to such a folder or refused. Symbolic links
 * are made verbatim. Devices are skipped and counted. What node has no call for (whiteouts, opaque folders, FIFOs,
 * extended attributes) is collected for extras.ts. Everything is synchronous: a promise per file would cost more than
 * its system calls.
 */
import {
  closeSync,
  constants,
  linkSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  rmSync,
  symlinkSync,
  unlinkSync,
  writeSync,
} from "node:fs";
import { Buffer } from "node:buffer";
import { errno, HarborError } from "../errors.ts";
import { reasonOf } from "../files/reason.ts";
import { follow } from "./links.ts";
import type { OwnerMap } from "./owners.ts";
import { bytesOfPath, cleanName, nameIn, parentOf, shown, systemPath } from "./paths.ts";
import { type Facts, settleFile, settleFolder, settleLink } from "./settle.ts";
import type { TarHeader } from "./tar_header.ts";
import type { TarSink } from "./tar_reader.ts";
import { neededWhiteouts, opaqueOf } from "./whiteouts.ts";

const NEW_FILE = constants.O_CREAT | constants.O_EXCL | constants.O_WRONLY | constants.O_NOFOLLOW;

/** What docker and podman give a folder that the layer does not list. */
const UNLISTED: Facts = { mode: 0o755, uid: 0, gid: 0, mtime: 0 };

/** What is left to do when all entries are written; paths are real ones, without links among their folders. */
export interface Extras {
  /** Names of lower layers that this one hides. */
  whiteouts: string[];
  /** Folders that hide all which lower layers have there. */
  opaque: string[];
  fifos: (TarHeader & { path: string })[];
  /** Files and folders with extended attributes; those of the layer's own overlay marks are not among them. */
  attributed: Map<string, TarHeader>;
  /** Other names of files, each with the name that the file was made under. */
  hardLinks: Map<string, string>;
}

export interface WriterOptions {
  owners: OwnerMap;
  /** All layers of an image go into this folder: whiteouts remove, nothing is left for an overlay to read. */
  flat?: boolean;
  /** How errors name the layer. */
  what: string;
}

export class LayerWriter implements TarSink {
  entries = 0;
  bytes = 0;
  devices = 0;
  /** Attributes that only another kernel or security module could use. */
  attributesLeftOut = 0;
  #extras: Extras = { whiteouts: [], opaque: [], fifos: [], attributed: new Map(), hardLinks: new Map() };
  /** Folders by real path; "" is the top. In a flat tree also those of the layers before. */
  #folders = new Map<string, Facts>([["", UNLISTED]]);
  /** Symbolic links of this layer by real path. */
  #links = new Map<string, string>();
  /** Everything this layer made, in a flat tree, where not all that is there is its own. */
  #own = new Set<string>();
  #file: { fd: number; header: TarHeader; path: string } | undefined;
  #lastFolder: [asked: string, real: string] = ["", ""];
  readonly #root: string;

  constructor(root: string, private readonly options: WriterOptions) {
    this.#root = bytesOfPath(root);
  }

  entry(header: TarHeader): void {
    this.entries++;
    this.#file = undefined;
    const path = this.#inside(header.name, "its name");
    const name = nameIn(path);
    if (name.startsWith(".wh.")) return this.#whiteout(path, name);
    this.#facing(header, () => this.#make(path, header));
  }

  data(chunk: Buffer): void {
    if (this.#file === undefined) return;
    const { fd, header } = this.#file;
    this.bytes += chunk.length;
    this.#facing(header, () => {
      for (let at = 0; at < chunk.length;) at += writeSync(fd, chunk, at, chunk.length - at);
    });
  }

  end(): void {
    if (this.#file === undefined) return;
    const { fd, header } = this.#file;
    this.#file = undefined;
    this.#facing(header, () => {
      try {
        settleFile(fd, header, this.options.owners);
      } finally {
        closeSync(fd);
      }
    });
  }

  /** Closes what an interrupted layer left open. */
  close(): void {
    if (this.#file !== undefined) closeSync(this.#file.fd);
    this.#file = undefined;
  }

  /**
   * The layer is complete: what extras.ts has to do. Whiteouts that hide nothing are left out: in a folder that hides
   * all, of a name that the layer has itself, and where `below` says that no lower layer has the name. One of them would
   * show as a broken device.
   */
  finishLayer(below: (path: string) => boolean): Extras {
    const { whiteouts, opaque, fifos, attributed, hardLinks } = this.#extras;
    const opaqueFolders = opaqueOf(opaque, whiteouts, (path) => this.#folders.has(path));
    const kept = neededWhiteouts(whiteouts, opaqueFolders, (path) => this.#isHere(path), below);
    const extras = {
      whiteouts: this.options.flat ? [] : kept,
      opaque: this.options.flat ? [] : [...opaqueFolders],
      fifos: fifos.filter(({ path }) => !this.#isHere(path)),
      attributed,
      hardLinks,
    };
    this.#extras = { whiteouts: [], opaque: [], fifos: [], attributed: new Map(), hardLinks: new Map() };
    this.#links = new Map();
    this.#own = new Set();
    this.#lastFolder = ["", ""];
    return extras;
  }

  /** Folders get their owner, mode and time last, deepest first: making entries in them needs the one and changes the other. */
  settleFolders(): void {
    const byDepth = [...this.#folders].sort(([a], [b]) => b.length - a.length);
    for (const [path, facts] of byDepth) settleFolder(this.#system(path), facts, this.options.owners);
  }

  #make(path: string, header: TarHeader): void {
    if (header.type === "5") return this.#folder(path, header);
    if (path === "") throw this.#refused(header.name, "it would replace the layer's top folder");
    const real = this.#place(path);
    switch (header.type) {
      case "0":
        return this.#newFile(real, header);
      case "2":
        this.#fresh(real, () => symlinkSync(Buffer.from(header.linkname, "latin1"), this.#system(real)));
        this.#links.set(real, header.linkname);
        return settleLink(this.#system(real), header, this.options.owners);
      case "1":
        return this.#hardLink(real, header);
      case "3":
      case "4":
        this.devices++;
        return;
      case "6":
        this.#clear(real);
        this.#extras.fifos.push({ ...header, path: real });
        return;
      default:
        throw this.#refused(header.name, `it is of a kind that layers do not have ('${shown(header.type)}')`);
    }
  }

  #newFile(real: string, header: TarHeader): void {
    const at = this.#system(real);
    let fd = -1;
    this.#fresh(real, () => (fd = openSync(at, NEW_FILE, header.mode & 0o777)));
    this.#file = { fd, header, path: real };
    this.#noteAttributes(real, header);
  }

  #hardLink(real: string, header: TarHeader): void {
    // Some builders write these targets from the root of the image.
    const target = this.#inside(header.linkname, "the target of its link");
    const source = target === "" ? undefined : this.#existing(target);
    if (source === undefined || this.#folders.has(source)) {
      throw this.#refused(
        header.name,
        `it is a hard link to '${shown(header.linkname)}', which this layer does not have`,
      );
    }
    if (source === real) return;
    this.#fresh(real, () => linkSync(this.#system(source), this.#system(real)));
    this.#extras.hardLinks.set(real, this.#extras.hardLinks.get(source) ?? source);
    const onward = this.#links.get(source);
    if (onward !== undefined) this.#links.set(real, onward);
  }

  #folder(path: string, header: TarHeader): void {
    const real = path === "" ? "" : this.#place(path);
    if (!this.#folders.has(real)) this.#fresh(real, () => mkdirSync(this.#system(real), header.mode | 0o700));
    this.#folders.set(real, header);
    if (this.options.flat) this.#own.add(real);
    this.#noteAttributes(real, header);
  }

  #noteAttributes(real: string, header: TarHeader): void {
    if (this.#extras.attributed.size > 0) this.#extras.attributed.delete(real);
    const entries = Object.entries(header.xattrs);
    if (entries.length === 0) return;
    const kept = entries.filter(([name]) => isUseful(name));
    this.attributesLeftOut += entries.length - kept.length;
    if (kept.length > 0) this.#extras.attributed.set(real, { ...header, xattrs: Object.fromEntries(kept) });
  }

  #whiteout(path: string, name: string): void {
    const folder = parentOf(path);
    if (name === ".wh..wh..opq") {
      const real = this.#realFolder(folder);
      this.#extras.opaque.push(real);
      if (this.options.flat) this.#empty(real);
      return;
    }
    if (name.startsWith(".wh..wh.")) return; // aufs kept its own books in these
    const hidden = name.slice(".wh.".length);
    if (hidden === "" || hidden === "." || hidden === "..") {
      throw this.#refused(path, `it hides '${shown(hidden)}', which is no name`);
    }
    const real = joined(this.#realFolder(folder), hidden);
    this.#extras.whiteouts.push(real);
    if (!this.options.flat) return;
    if (!this.#own.has(real)) this.#remove(real);
    else if (this.#folders.has(real)) this.#empty(real);
  }

  /** The real path for a new entry: its folder's, and its own name. */
  #place(path: string): string {
    return joined(this.#realFolder(parentOf(path)), nameIn(path));
  }

  /**
   * Real path of a folder of the layer; what is missing on the way is made. A link among its parts is followed to where
   * it leads from the layer's top, which must be a folder that is here.
   */
  #realFolder(path: string): string {
    if (path === this.#lastFolder[0]) return this.#lastFolder[1];
    let real = path;
    if (!this.#folders.has(path)) {
      real = "";
      for (const part of path.split("/")) {
        const next = joined(real, part);
        if (this.#folders.has(next)) real = next;
        else if (this.#links.has(next)) real = this.#throughLink(next, path);
        else real = this.#makeMissing(next, path);
      }
    }
    this.#lastFolder = [path, real];
    return real;
  }

  /** Also in place of a link that a lower layer left in a flat tree: an overlay would show the folder. */
  #makeMissing(real: string, path: string): string {
    try {
      this.#fresh(real, () => mkdirSync(this.#system(real), UNLISTED.mode), path);
    } catch (error) {
      if (errno(error) !== "EEXIST") throw error;
      throw this.#refused(path, `'${shown(real)}' is a file, not a folder`);
    }
    this.#folders.set(real, UNLISTED);
    return real;
  }

  #throughLink(link: string, path: string): string {
    const real = follow(link, this.#links);
    if (real !== undefined && this.#folders.has(real)) return real;
    const target = shown(this.#links.get(link)!);
    throw this.#refused(
      path,
      `it lies behind the link '${shown(link)}' to '${target}', which is no folder of this layer`,
    );
  }

  /** Real path of an entry that this layer made, the last part not followed; undefined when there is none. */
  #existing(path: string): string | undefined {
    const parent = parentOf(path);
    const folder = this.#folders.has(parent) ? parent : follow(parent, this.#links);
    if (folder === undefined || !this.#folders.has(folder)) return undefined;
    const real = joined(folder, nameIn(path));
    return this.#isHere(real) ? real : undefined;
  }

  #isHere(real: string): boolean {
    if (this.options.flat) return this.#own.has(real);
    return lstatSync(this.#system(real) as string, { throwIfNoEntry: false }) !== undefined;
  }

  /** Makes an entry; one that is there already gives way, as with tar, save that `asParent` stops at what is this layer's own. */
  #fresh(real: string, make: () => void, asParent?: string): void {
    try {
      make();
    } catch (error) {
      if (errno(error) !== "EEXIST") throw error;
      if (asParent !== undefined && (!this.options.flat || this.#own.has(real))) throw error;
      this.#clear(real);
      make();
    }
    if (this.options.flat) this.#own.add(real);
  }

  /** Removes what is there under a name that an entry of this layer takes. */
  #clear(real: string): void {
    this.#remove(real);
    this.#links.delete(real);
    this.#extras.attributed.delete(real);
    this.#extras.hardLinks.delete(real);
  }

  #remove(real: string): void {
    const at = this.#system(real);
    if (!this.#folders.has(real)) {
      try {
        unlinkSync(at);
      } catch (error) {
        if (errno(error) !== "ENOENT") throw error;
      }
      return;
    }
    rmSync(at as string, { recursive: true });
    const below = `${real}/`;
    for (const map of [this.#folders, this.#links, this.#extras.attributed, this.#extras.hardLinks]) {
      for (const path of map.keys()) if (path === real || path.startsWith(below)) map.delete(path);
    }
    this.#lastFolder = ["", ""];
  }

  /** Removes what layers before put into a folder, in a flat tree. */
  #empty(folder: string): void {
    for (const name of readdirSync(this.#system(folder), { encoding: "latin1" })) {
      const real = joined(folder, name);
      if (!this.#own.has(real)) this.#remove(real);
      else if (this.#folders.has(real)) this.#empty(real);
    }
  }

  /** An absolute name counts from the layer's top, as it does for docker and podman. */
  #inside(name: string, what: string): string {
    const path = cleanName(name.replace(/^\/+/, ""));
    if (path === undefined) throw this.#refused(name, `${what} leads out of the layer`);
    return path;
  }

  #system(real: string): string | Buffer {
    return systemPath(real === "" ? this.#root : `${this.#root}/${real}`);
  }

  #refused(name: string, why: string): HarborError {
    return new HarborError("image.failed", `${this.options.what} cannot be unpacked: '${shown(name)}': ${why}`, {
      hint: "no container engine would take this layer; build the image again",
    });
  }

  /** Names the entry in what went wrong; a full disk stays visible in `cause`. */
  #facing(header: TarHeader, step: () => void): void {
    try {
      step();
    } catch (cause) {
      if (cause instanceof HarborError || errno(cause) === undefined) throw cause;
      const doing = `${this.options.what} cannot be unpacked: '${shown(header.name)}'`;
      throw new HarborError("image.failed", `${doing}: ${reasonOf(cause)}`, { cause });
    }
  }
}

const joined = (folder: string, name: string): string => folder === "" ? name : `${folder}/${name}`;

/**
 * Capabilities of programs, and what users keep. The overlay's own attributes must never come from an image: with
 * `user.overlay.redirect` it could show any folder. Others (selinux, ACLs, trusted) mean nothing on another machine.
 */
const isUseful = (name: string): boolean =>
  name === "security.capability" || (name.startsWith("user.") && !name.startsWith("user.overlay."));
