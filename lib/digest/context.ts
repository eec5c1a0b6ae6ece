/**
 * Identity of a build context: the hash that names an image (`hb__<hash>`, Harbor's environment id), and the digest of
 * everything a build reads, which also tells modes, links and settings apart (task-format §9.3, §9.4).
 */
import { createHash, type Hash } from "node:crypto";
import { Buffer } from "node:buffer";
import { lstatSync, readlinkSync } from "node:fs";
import { basename, resolve } from "node:path";
import { type Entry, isFolder, walkTree } from "../files/tree.ts";
import { byCodePoint } from "../files/order.ts";
import { canonicalJson, sha256 } from "./canonical.ts";
import { FileReader, type Sink } from "./reader.ts";

const LEFT_OUT = new Set([".git", "__pycache__", ".DS_Store"]);
const HEX_DIGITS = 32;
const FOUR_GIB = 2 ** 32;

export interface ContextOptions {
  /** `docker_image`, which names a context without files. */
  dockerImage?: string;
  /** Gets the sums of the files, for other hashes over the same. */
  reader?: FileReader;
  /** What lies below the folder, when it was walked already. */
  entries?: readonly Entry[];
  /** From which length on a file does not fit a 32-bit length; for tests. */
  wideFrom?: number;
}

/**
 * 32 hex digits over names and bytes of the regular files below `folder`; links, modes and empty folders do not count.
 * Where a file has 4 GiB or more, all content lengths are 8 bytes and a byte 0x01 goes first (Harbor 0.25). A folder
 * without files, or none, is named by its image or its own name. Throws HarborError "task.invalid" naming a file.
 */
export function contextHash(folder: string, options: ContextOptions = {}): string {
  const files = (options.entries ?? entriesBelow(folder)).filter(({ path, kind }) => kind === "file" && counts(path));
  if (files.length === 0) return sha256(options.dockerImage || basename(resolve(folder))).slice(0, HEX_DIGITS);
  const wideFrom = options.wideFrom ?? FOUR_GIB;
  for (const wide of [false, true]) {
    const stream = new ContextStream(wide, wideFrom);
    if (files.every(({ path }) => feed(options.reader, `${folder}/${path}`, path, stream))) return stream.digest();
  }
  throw new Error("a wide context hash takes every length");
}

/** False when the file is too long for the layout. */
function feed(reader: FileReader | undefined, file: string, path: string, stream: ContextStream): boolean {
  stream.name(path);
  try {
    if (reader === undefined) new FileReader().pour(file, stream);
    else reader.feed(file, stream);
    return true;
  } catch (error) {
    if (error === TOO_LONG) return false;
    throw error;
  }
}

const TOO_LONG = new Error("a file of 4 GiB or more");

class ContextStream implements Sink {
  #hash: Hash = createHash("sha256");
  #head = Buffer.alloc(4 + 4096 * 3 + 8);
  #filled = 0;

  constructor(readonly wide: boolean, readonly wideFrom: number) {
    if (wide) this.#hash.update(new Uint8Array([1]));
  }

  name(path: string): void {
    if (this.#head.length < path.length * 3 + 12) this.#head = Buffer.alloc(path.length * 3 + 12);
    const length = this.#head.write(path, 4);
    this.#head.writeUInt32BE(length, 0);
    this.#filled = 4 + length;
  }

  begin(length: number): void {
    if (this.wide) this.#filled = this.#head.writeBigUInt64BE(BigInt(length), this.#filled);
    else if (length >= this.wideFrom) throw TOO_LONG;
    else this.#filled = this.#head.writeUInt32BE(length, this.#filled);
    this.#hash.update(this.#head.subarray(0, this.#filled));
  }

  bytes(chunk: Uint8Array): void {
    this.#hash.update(chunk);
  }

  digest(): string {
    return this.#hash.digest("hex").slice(0, HEX_DIGITS);
  }
}

/** What a build is told besides its context. */
export interface BuildSettings {
  platform?: string;
  build_args?: Record<string, string>;
  target?: string;
  dockerfile?: string;
  service?: string;
}

/**
 * 64 hex digits over everything below `folder` that a build reads: names, kinds, permission bits, bytes, link targets,
 * empty folders, and the settings. Throws HarborError "task.invalid" naming a file.
 */
export function inputsDigest(folder: string, settings: BuildSettings = {}, reader = new FileReader()): string {
  const digest = createHash("sha256");
  for (const { kind, path, mode, content } of inputsBelow(folder, reader)) {
    digest.update(`${kind}\0${path}\0${mode}\0${content}\n`);
  }
  return digest.update(`settings\0${sha256(canonicalJson(settings))}\n`).digest("hex");
}

interface InputRecord {
  kind: string;
  path: string;
  /** Permission bits, octal. */
  mode: string;
  content: string;
}

function* inputsBelow(folder: string, reader: FileReader): Generator<InputRecord> {
  const entries = entriesBelow(folder).filter(({ kind }) => kind !== "other")
    .sort((a, b) => byCodePoint(a.path, b.path));
  for (const { path, kind } of entries) {
    const at = `${folder}/${path}`;
    const mode = (lstatSync(at).mode & 0o777).toString(8);
    const content = kind === "file" ? reader.sum(at) : kind === "link" ? readlinkSync(at) : "";
    yield { kind: kind[0]!, path, mode, content };
  }
}

/** One side of a comparison: what a build reads, and whose it is. */
export interface BuildInputs {
  owner: string;
  folder: string;
  settings: BuildSettings;
}

const KINDS: Record<string, string> = { f: "a file", d: "a folder", l: "a link" };

/** What makes the inputsDigest() of two contexts differ, a clause each, at most `limit` and then how many more. */
export function inputDifferences(a: BuildInputs, b: BuildInputs, limit = 5): string[] {
  const reader = new FileReader();
  const [left, right] = [a, b].map(({ folder }) =>
    new Map(Array.from(inputsBelow(folder, reader), (record) => [record.path, record]))
  ) as [Map<string, InputRecord>, Map<string, InputRecord>];
  const found: string[] = [];
  for (const path of [...new Set([...left.keys(), ...right.keys()])].sort(byCodePoint)) {
    const [one, other] = [left.get(path), right.get(path)];
    if (one === undefined || other === undefined) {
      const kind = KINDS[(one ?? other)!.kind];
      found.push(`${path} is ${kind} only in ${one === undefined ? b.owner : a.owner}`);
    } else if (one.kind !== other.kind) {
      found.push(`${path} is ${KINDS[one.kind]} in ${a.owner}, ${KINDS[other.kind]} in ${b.owner}`);
    } else if (one.content !== other.content) {
      const what = one.kind === "l"
        ? `leads to ${one.content} in ${a.owner}, ${other.content} in`
        : "has other bytes in";
      found.push(`${path} ${what} ${b.owner}`);
    } else if (one.mode !== other.mode) {
      found.push(`${path} has mode ${one.mode} in ${a.owner}, ${other.mode} in ${b.owner}`);
    }
  }
  for (const key of ["platform", "build_args", "target", "dockerfile", "service"] as const) {
    if (canonicalJson(a.settings[key] ?? null) !== canonicalJson(b.settings[key] ?? null)) {
      found.push(`the build's ${key} differs`);
    }
  }
  return found.length <= limit ? found : [...found.slice(0, limit), `and ${found.length - limit} more`];
}

function entriesBelow(folder: string): Entry[] {
  const entries: Entry[] = [];
  if (isFolder(folder)) walkTree(folder, (entry) => void entries.push(entry));
  return entries;
}

function counts(path: string): boolean {
  return !path.split("/").some((component) => LEFT_OUT.has(component));
}
