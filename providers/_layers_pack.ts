/**
 * What a sandbox wrote, as a layer of an image: GNU tar reads the overlay's upper folder where its ids are those of the
 * image, and each entry is turned back into what a layer says (OCI image-spec, "Whiteouts"): a character device 0/0
 * becomes `.wh.<name>`, an opaque folder gets `.wh..wh..opq`. Sorted by name; the same writes give the same layer.
 */
import { createHash } from "node:crypto";
import { createWriteStream } from "node:fs";
import { stat } from "node:fs/promises";
import { Buffer } from "node:buffer";
import { Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGzip } from "node:zlib";
import { HarborError } from "../lib/errors.ts";
import { Producer } from "../lib/runtime/producer.ts";
import type { Runner } from "../lib/runtime/runner.ts";
import { decisiveLine } from "../lib/sandbox/failure.ts";
import { OPAQUE } from "../lib/unpack/extras.ts";
import { END_OF_ARCHIVE, headerBlocks, padding, type TarHeader } from "../lib/unpack/tar_header.ts";
import { TarReader, type TarSink } from "../lib/unpack/tar_reader.ts";
import { PATH } from "./_namespace_machine.ts";

export interface PackedLayer {
  /** Of the compressed archive. */
  digest: string;
  size: number;
  diffId: string;
  entries: number;
}

/** Written by us into every sandbox, or mounted over: no part of an image. */
const OURS = /^(\.gym-harbor[^/]*|dev|proc|sys|\.old)(\/|$)|^etc\/(hosts|hostname|resolv\.conf)$/;

/** Turns entries of an upper folder into those of a layer. */
export class LayerEntries implements TarSink {
  entries = 0;
  #skipping = false;
  #size = 0;
  /** `/etc` as it is in the image: it only counts with something in it. */
  #etc: Buffer | undefined;

  /** `etcMode`: of the base image, which every sandbox has a folder of its own for. */
  constructor(private readonly emit: (bytes: Buffer) => void, private readonly etcMode: number | undefined) {}

  entry(header: TarHeader): void {
    const name = header.name.replace(/^\.\//, "").replace(/\/+$/, "");
    this.#size = header.type === "0" ? header.size : 0;
    this.#skipping = name === "" || name === "." || OURS.test(name);
    if (this.#skipping) return;
    const xattrs = Object.fromEntries(
      Object.entries(header.xattrs).filter(([key]) => !key.startsWith("user.overlay.")),
    );
    const plain = { ...header, xattrs, name };
    if (header.type === "3") {
      this.#skipping = true;
      const at = name.lastIndexOf("/") + 1;
      return this.#put({ name: `${name.slice(0, at)}.wh.${name.slice(at)}`, mode: 0, mtime: header.mtime });
    }
    if (header.type === "5") {
      if (name === "etc" && header.mode === this.etcMode && header.xattrs[OPAQUE] === undefined) {
        this.#etc = headerBlocks({ ...plain, name: "etc/" });
        return;
      }
      this.#put({ ...plain, name: `${name}/` });
      if (header.xattrs[OPAQUE] === "y") this.#put({ name: `${name}/.wh..wh..opq`, mode: 0, mtime: header.mtime });
      return;
    }
    this.#put({ ...plain, ...(header.type === "1" && { linkname: header.linkname.replace(/^\.\//, ""), size: 0 }) });
  }

  #put(header: Parameters<typeof headerBlocks>[0]): void {
    if (this.#etc !== undefined && header.name.startsWith("etc/")) {
      this.emit(this.#etc);
      this.#etc = undefined;
    }
    this.entries++;
    this.emit(headerBlocks(header));
  }

  data(chunk: Buffer): void {
    if (!this.#skipping) this.emit(chunk);
  }

  end(): void {
    if (!this.#skipping && this.#size > 0) this.emit(padding(this.#size));
  }
}

export interface PackOptions {
  runner: Runner;
  /** Words that lead into the namespace in which the files have the image's ids; none as root. */
  inside: readonly string[];
  etcMode: number | undefined;
}

/** Writes the layer to `to`. Throws "image.failed" when it cannot be read whole. */
export async function packLayer(
  upper: string,
  to: string,
  { runner, inside, etcMode }: PackOptions,
  signal: AbortSignal,
): Promise<PackedLayer> {
  const argv = [
    ...inside,
    "tar",
    "--create",
    "--file=-",
    `--directory=${upper}`,
    "--format=pax",
    "--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime",
    "--sort=name",
    "--xattrs",
    "--xattrs-include=security.capability",
    "--xattrs-include=user.*",
    "--numeric-owner",
    ".",
  ];
  using tar = await Producer.start(runner, argv, signal, { env: { PATH, LC_ALL: "C" } });
  const diff = createHash("sha256");
  const blob = createHash("sha256");
  let entries: LayerEntries;
  const rewriting = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      try {
        reader.push(chunk);
        done();
      } catch (error) {
        done(error as Error);
      }
    },
    flush(done) {
      try {
        reader.finish();
        emit(END_OF_ARCHIVE);
        done();
      } catch (error) {
        done(error as Error);
      }
    },
  });
  const emit = (bytes: Buffer) => {
    diff.update(bytes);
    rewriting.push(bytes);
  };
  const reader = new TarReader(entries = new LayerEntries(emit, etcMode), "The new layer");
  const hashing = new Transform({ transform: (chunk, _, done) => (blob.update(chunk), done(null, chunk)) });
  await pipeline(tar.stdout, rewriting, createGzip(), hashing, createWriteStream(to), { signal });
  const { exitCode } = await tar.ended;
  if (exitCode !== 0) {
    throw new HarborError("image.failed", `Cannot pack what the build wrote: ${decisiveLine(tar.said)}`, {
      details: { stderr: tar.said, class: "build" },
    });
  }
  const { size } = await stat(to);
  return {
    digest: `sha256:${blob.digest("hex")}`,
    size,
    diffId: `sha256:${diff.digest("hex")}`,
    entries: entries.entries,
  };
}
