/**
 * A root file system as an image of one layer: a folder, read by GNU tar so that owners, links, odd names and
 * capabilities come along, or an archive of one (`docker export`). The same files give the same image.
 */
import { createHash } from "node:crypto";
import { createWriteStream, existsSync, realpathSync, rmSync } from "node:fs";
import { open, stat } from "node:fs/promises";
import { join } from "node:path";
import { Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import { HarborError } from "../errors.ts";
import { type ImageFile, platformName } from "../images/config.ts";
import { Producer } from "../runtime/producer.ts";
import type { Runner } from "../runtime/runner.ts";
import { thisUid } from "../runtime/user.ts";
import { decisiveLine } from "../sandbox/failure.ts";
import { unpacked } from "../unpack/decompress.ts";
import { digestOf } from "./blobs.ts";
import { type Compression, compressionOf, mediaTypesFor } from "./media.ts";
import { memorySource, piecesFrom } from "./sources.ts";
import type { ImageStore, StoredImage } from "./store.ts";

export interface RootfsOptions {
  names: string[];
  /** `os/arch`. */
  platform: string;
  runner: Runner;
}

/** What every root file system has one of. */
const SIGNS = ["bin", "usr", "etc", "lib", "sbin"];

/** Whether a folder looks like the root of a system. */
export const looksLikeRoot = (folder: string): boolean => SIGNS.some((name) => existsSync(join(folder, name)));

/** Throws "image.failed" when tar cannot read it all, "usage" when the store lies inside the folder. */
export async function importRootfs(
  folder: string,
  store: ImageStore,
  options: RootfsOptions,
  signal: AbortSignal,
): Promise<StoredImage> {
  const work = store.workFolder();
  try {
    if (`${realpathSync(work)}/`.startsWith(`${realpathSync(folder)}/`)) {
      throw new HarborError("usage", `the image store ${store.folder} lies inside ${folder}`, {
        hint: "put it elsewhere: --image-store DIR",
      });
    }
    const path = join(work, "layer.tar");
    const { digest, size } = await archive(folder, path, options.runner, signal);
    await store.adopt(path, { digest, size });
    return await addSingle({ digest, size, diffId: digest, compression: "plain" }, store, options, signal);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/** A tar archive of a root file system, compressed or not, which becomes the layer as it is. */
export async function importRootfsArchive(
  path: string,
  store: ImageStore,
  options: RootfsOptions,
  signal: AbortSignal,
): Promise<StoredImage> {
  const { blob, blobSize, diff } = await unpacked(path, () => {}, signal);
  const file = await open(path, "r");
  try {
    const layer = { mediaType: "", digest: blob, size: blobSize };
    await store.take(layer, (offset) => Promise.resolve(piecesFrom(file, offset)), signal);
    const { buffer } = await file.read(new Uint8Array(4), 0, 4, 0);
    return await addSingle({ ...layer, diffId: diff, compression: compressionOf(buffer) }, store, options, signal);
  } finally {
    await file.close();
  }
}

async function archive(folder: string, path: string, runner: Runner, signal: AbortSignal) {
  const argv = [
    "tar",
    "--create",
    "--file=-",
    `--directory=${folder}`,
    "--format=pax",
    "--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime",
    "--sort=name",
    "--one-file-system",
    "--xattrs",
    "--xattrs-include=security.capability",
    "--xattrs-include=user.*",
    "--numeric-owner",
    // A plain user's files are root's inside.
    ...(thisUid() === 0 ? [] : ["--owner=0", "--group=0"]),
    ".",
  ];
  using tar = await Producer.start(runner, argv, signal);
  const hash = createHash("sha256");
  const hashing = new Transform({ transform: (chunk, _, done) => (hash.update(chunk), done(null, chunk)) });
  await pipeline(tar.stdout, hashing, createWriteStream(path), { signal });
  const { exitCode } = await tar.ended;
  if (exitCode !== 0) {
    throw new HarborError("image.failed", `Cannot import ${folder}: ${decisiveLine(tar.said)}`, {
      hint: "tar must be GNU's and able to read all files; nothing may write to the folder meanwhile",
      details: { stderr: tar.said },
    });
  }
  return { digest: `sha256:${hash.digest("hex")}`, size: (await stat(path)).size };
}

interface SingleLayer {
  digest: string;
  size: number;
  diffId: string;
  compression: Compression;
}

async function addSingle(
  layer: SingleLayer,
  store: ImageStore,
  { names, platform }: RootfsOptions,
  signal: AbortSignal,
) {
  const [os = "", architecture = ""] = platformName(platform).split("/");
  const file: ImageFile = {
    architecture,
    os,
    config: { Env: ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"], Cmd: ["/bin/sh"] },
    rootfs: { type: "layers", diff_ids: [layer.diffId] },
  };
  const types = mediaTypesFor(file);
  const configBytes = jsonBytes(file);
  const config = { mediaType: types.config, digest: digestOf(configBytes), size: configBytes.length };
  await store.take(config, memorySource(configBytes), signal);
  const manifestBytes = jsonBytes({
    schemaVersion: 2,
    mediaType: types.manifest,
    config,
    layers: [{ mediaType: types.layer[layer.compression], digest: layer.digest, size: layer.size }],
  });
  const manifest = { mediaType: types.manifest, digest: digestOf(manifestBytes), size: manifestBytes.length };
  return await store.add({ manifest, manifestBytes }, names);
}

const jsonBytes = (value: unknown): Uint8Array => new TextEncoder().encode(JSON.stringify(value));
