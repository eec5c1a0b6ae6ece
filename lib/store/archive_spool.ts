/**
 * The files of an archive as they come, each hashed and written once to a folder of the store's disk: which of them are
 * layers is only known at the end, where `docker save` puts its manifest. Links, which engines write for equal layers,
 * are followed by our own table, never on the disk.
 */
import { createHash, type Hash } from "node:crypto";
import { Buffer } from "node:buffer";
import { closeSync, openSync, readFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { HarborError } from "../errors.ts";
import { cleanName, parentOf, shown } from "../unpack/paths.ts";
import type { TarHeader } from "../unpack/tar_header.ts";
import type { TarSink } from "../unpack/tar_reader.ts";
import { type Compression, compressionOf } from "./media.ts";

/** More than the layers and descriptions of any real set of images. */
const MAX_ENTRIES = 20_000;
/** Manifests, indexes and configurations; real ones have some kB. */
const MAX_JSON_BYTES = 8 * 2 ** 20;
const MAX_LINKS = 10;

export interface SpooledFile {
  path: string;
  digest: string;
  size: number;
  compression: Compression;
}

export class ArchiveSpool implements TarSink {
  #entries = new Map<string, SpooledFile | { linkTo: string | undefined }>();
  #open: { fd: number; hash: Hash; name: string; path: string; size: number; first: Buffer } | undefined;

  constructor(private readonly folder: string, private readonly what: string) {}

  entry(header: TarHeader): void {
    const name = cleanName(header.name);
    if (name === undefined) throw this.bad(`'${shown(header.name)}' leads out of the archive`);
    if (name === "" || header.type === "5") return;
    if (this.#entries.size >= MAX_ENTRIES) throw this.bad(`it has more than ${MAX_ENTRIES} entries`);
    if (header.type === "1" || header.type === "2") {
      const from = header.type === "1" ? "" : parentOf(name);
      this.#entries.set(name, { linkTo: linkTarget(from, header.linkname) });
      return;
    }
    if (header.type !== "0") throw this.bad(`'${shown(name)}' is neither a file nor a folder nor a link`);
    const path = join(this.folder, String(this.#entries.size));
    this.#open = {
      fd: openSync(path, "w", 0o644),
      hash: createHash("sha256"),
      name,
      path,
      size: 0,
      first: Buffer.alloc(0),
    };
  }

  data(chunk: Buffer): void {
    const file = this.#open!;
    if (file.first.length < 4) file.first = Buffer.concat([file.first, chunk.subarray(0, 4)]);
    file.hash.update(chunk);
    file.size += chunk.length;
    for (let at = 0; at < chunk.length;) at += writeSync(file.fd, chunk, at, chunk.length - at);
  }

  end(): void {
    if (this.#open === undefined) return;
    const { name, path, size, hash, first } = this.#open;
    this.close();
    this.#entries.set(name, { path, size, digest: `sha256:${hash.digest("hex")}`, compression: compressionOf(first) });
  }

  /** Closes what an archive that broke off left open. */
  close(): void {
    if (this.#open !== undefined) closeSync(this.#open.fd);
    this.#open = undefined;
  }

  /** The file of that name, links followed; undefined when there is none. Throws for a link that leaves the archive. */
  file(name: string): SpooledFile | undefined {
    let at: string = name;
    for (let hops = 0; hops <= MAX_LINKS; hops++) {
      const found = this.#entries.get(at);
      if (found === undefined || "path" in found) return found;
      if (found.linkTo === undefined) throw this.bad(`'${shown(name)}' is a link out of the archive`);
      at = found.linkTo;
    }
    throw this.bad(`the links of '${shown(name)}' go round in a circle`);
  }

  /** The JSON value of a file. Throws "image.failed" when it is absent, too large or no JSON. */
  json(name: string): unknown {
    return parseJson(this.bytes(name), () => this.bad(`'${shown(name)}' is no JSON`));
  }

  bytes(name: string): Uint8Array {
    const file = this.file(name);
    if (file === undefined) throw this.bad(`it has no '${shown(name)}'`);
    if (file.size > MAX_JSON_BYTES) {
      throw this.bad(`its '${shown(name)}' has ${file.size} bytes, more than a description can have`);
    }
    return readFileSync(file.path);
  }

  bad(why: string): HarborError {
    return new HarborError("image.failed", `Cannot import ${this.what}: ${why}`, {
      hint:
        "it takes archives of 'docker save' and 'podman save', OCI layouts (folder or archive), and a folder with a root file system",
    });
  }
}

function linkTarget(from: string, target: string): string | undefined {
  if (target.startsWith("/") || target.includes("\0")) return undefined;
  const at = from === "" ? [] : from.split("/");
  for (const part of target.split("/")) {
    if (part === "" || part === ".") continue;
    if (part !== "..") at.push(part);
    else if (at.pop() === undefined) return undefined;
  }
  return at.join("/");
}

export function parseJson(bytes: Uint8Array, fault: () => HarborError): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch {
    throw fault();
  }
}
