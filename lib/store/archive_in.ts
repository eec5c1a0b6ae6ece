/**
 * Images from archives into the store: `docker save` (20.10 and 28), `podman save` (docker-archive and oci-archive), OCI
 * layouts as tar. Configurations stay byte for byte, so images keep their ids. Layers that come uncompressed stay so:
 * compressing costs seconds per 100 MB, gives other bytes with another version of zlib, and saves only disk.
 */
import { rmSync } from "node:fs";
import { z } from "zod";
import { errno, HarborError } from "../errors.ts";
import { reasonOf } from "../files/reason.ts";
import { ImageFile } from "../images/config.ts";
import { MEDIA } from "../registry/registry.ts";
import { unpackedStream } from "../unpack/decompress.ts";
import { TarReader } from "../unpack/tar_reader.ts";
import { ArchiveSpool, parseJson, type SpooledFile } from "./archive_spool.ts";
import { digestOf, hexOf } from "./blobs.ts";
import { unwritableStore } from "./damage.ts";
import { type IndexEntry, IndexFile, namesOf } from "./index_file.ts";
import { mediaTypesFor } from "./media.ts";
import { memorySource } from "./sources.ts";
import type { ImageStore, StoredImage } from "./store.ts";

/** manifest.json of a docker-archive. */
const Manifests = z.array(z.looseObject({
  Config: z.string(),
  RepoTags: z.array(z.string()).nullish(),
  Layers: z.array(z.string()),
})).min(1);

export interface ImportOptions {
  /** How errors name the source. */
  what: string;
  /** Names for its one image, instead of its own; refused for an archive of several. */
  names?: string[];
}

/**
 * All images of an archive that comes as a stream, gzip or zstd around it or not. Throws "image.failed" for what is no
 * such archive or contradicts itself, and leaves the store as it was but for blobs.
 */
export async function importArchive(
  source: AsyncIterable<Uint8Array>,
  store: ImageStore,
  options: ImportOptions,
  signal: AbortSignal,
): Promise<StoredImage[]> {
  const folder = store.workFolder();
  const spool = new ArchiveSpool(folder, options.what);
  try {
    const reader = new TarReader(spool, options.what);
    await unpackedStream(source, (chunk) => {
      signal.throwIfAborted();
      reader.push(chunk);
    });
    reader.finish();
    const found = spool.file("index.json") !== undefined && spool.file("oci-layout") !== undefined
      ? fromLayout(spool)
      : fromDockerArchive(spool);
    return await takeAll(found, store, { names: options.names, spool }, signal);
  } catch (cause) {
    if (signal.aborted) throw signal.reason;
    if (cause instanceof HarborError) throw cause;
    if (/^E[A-Z]+$/.test(errno(cause) ?? "")) {
      throw unwritableStore(`Cannot import ${options.what}`, store.folder, cause);
    }
    throw new HarborError("image.failed", `Cannot import ${options.what}: ${reasonOf(cause)}`, { cause });
  } finally {
    spool.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** An image of an archive: what the store needs to take it. */
interface Found {
  names: string[];
  manifestBytes: Uint8Array;
  mediaType: string;
  indexDigest?: string;
  configBytes: Uint8Array;
  layers: { digest: string; file: SpooledFile }[];
}

async function takeAll(
  found: readonly Found[],
  store: ImageStore,
  { names, spool }: { names: string[] | undefined; spool: ArchiveSpool },
  signal: AbortSignal,
): Promise<StoredImage[]> {
  if (names !== undefined && found.length > 1) {
    throw spool.bad(
      `it has ${found.length} images (${found.flatMap((one) => one.names).join(", ")}), and one name was given`,
    );
  }
  const images: StoredImage[] = [];
  for (const one of found) {
    for (const { file } of one.layers) await store.adopt(file.path, file);
    await store.take(descriptorOf(one.configBytes), memorySource(one.configBytes), signal);
    const manifest = { ...descriptorOf(one.manifestBytes), mediaType: one.mediaType };
    const { manifestBytes, indexDigest } = one;
    images.push(await store.add({ manifest, manifestBytes, indexDigest }, names ?? one.names));
  }
  return images;
}

const descriptorOf = (bytes: Uint8Array) => ({ mediaType: "", digest: digestOf(bytes), size: bytes.length });

function fromDockerArchive(spool: ArchiveSpool): Found[] {
  if (spool.file("manifest.json") === undefined) {
    throw spool.bad("it has neither a manifest.json nor an OCI layout");
  }
  const parsed = Manifests.safeParse(spool.json("manifest.json"));
  if (!parsed.success) throw spool.bad("its manifest.json is not one of a docker-archive");
  return parsed.data.map(({ Config, RepoTags, Layers }) => {
    const configBytes = spool.bytes(Config);
    const file = configOf(configBytes, spool);
    const layers = Layers.map((name) => layerOf(name, spool));
    checkDiffIds(file, layers, spool);
    const types = mediaTypesFor(file);
    const manifest = {
      schemaVersion: 2,
      mediaType: types.manifest,
      config: { mediaType: types.config, digest: digestOf(configBytes), size: configBytes.length },
      layers: layers.map((layer) => ({
        mediaType: types.layer[layer.compression],
        digest: layer.digest,
        size: layer.size,
      })),
    };
    return {
      names: RepoTags ?? [],
      manifestBytes: new TextEncoder().encode(JSON.stringify(manifest)),
      mediaType: types.manifest,
      configBytes,
      layers: layers.map((layer) => ({ digest: layer.digest, file: layer })),
    };
  });
}

function configOf(bytes: Uint8Array, spool: ArchiveSpool): ImageFile {
  const parsed = ImageFile.safeParse(parseJson(bytes, () => spool.bad("a configuration is no JSON")));
  if (!parsed.success) throw spool.bad("a configuration is not one of an image");
  return parsed.data;
}

function layerOf(name: string, spool: ArchiveSpool): SpooledFile {
  const file = spool.file(name);
  if (file === undefined) throw spool.bad(`its layer '${name}' is missing`);
  return file;
}

/** What comes uncompressed is its own diff id; the rest is checked when it is unpacked. */
function checkDiffIds({ rootfs }: ImageFile, layers: readonly SpooledFile[], spool: ArchiveSpool): void {
  if (rootfs.diff_ids.length !== layers.length) {
    throw spool.bad(`it has ${layers.length} layers, its configuration says ${rootfs.diff_ids.length}`);
  }
  for (const [index, { compression, digest }] of layers.entries()) {
    if (compression !== "plain" || digest === rootfs.diff_ids[index]) continue;
    throw spool.bad(`layer ${index + 1} has the digest ${digest}, its configuration says ${rootfs.diff_ids[index]}`);
  }
}

const ManifestFile = z.looseObject({
  config: z.looseObject({ digest: z.string() }),
  layers: z.array(z.looseObject({ digest: z.string() })),
});

/** Images of an OCI layout whose blobs are all in the archive. */
function fromLayout(spool: ArchiveSpool): Found[] {
  const index = indexOf(spool.json("index.json"), spool);
  const found = index.manifests.flatMap((entry) => imagesBehind(entry, spool, undefined, 0));
  if (found.length === 0) throw spool.bad("its OCI layout has no whole image");
  const tags = dockerTags(spool);
  const merged = new Map<string, Found>();
  for (const one of found) {
    const key = digestOf(one.manifestBytes);
    const names = [...merged.get(key)?.names ?? [], ...one.names, ...tags.get(digestOf(one.configBytes)) ?? []];
    merged.set(key, { ...one, names: [...new Set(names)] });
  }
  return [...merged.values()];
}

function imagesBehind(entry: IndexEntry, spool: ArchiveSpool, above: IndexEntry | undefined, depth: number): Found[] {
  const name = blobName(entry.digest);
  if (depth > 4 || entry.platform?.os === "unknown" || spool.file(name) === undefined) return [];
  const bytes = checkedBytes(entry.digest, spool);
  if (entry.mediaType === MEDIA.ociIndex || entry.mediaType === MEDIA.dockerList) {
    return indexOf(parseJson(bytes, () => spool.bad(`the blob ${entry.digest} is no JSON`)), spool).manifests
      .flatMap((one) => imagesBehind(one, spool, entry, depth + 1));
  }
  const parsed = ManifestFile.safeParse(parseJson(bytes, () => spool.bad(`the blob ${entry.digest} is no JSON`)));
  if (!parsed.success) return []; // an artifact
  const { config, layers } = parsed.data;
  if ([config, ...layers].some(({ digest }) => spool.file(blobName(digest)) === undefined)) return [];
  const names = namesOf(above ?? entry).filter((one) => /[/:]/.test(one));
  return [{
    names,
    manifestBytes: bytes,
    mediaType: entry.mediaType,
    ...(above !== undefined && { indexDigest: above.digest }),
    configBytes: checkedBytes(config.digest, spool),
    layers: layers.map(({ digest }) => ({ digest, file: checkedFile(digest, spool) })),
  }];
}

/** `RepoTags` that docker 25 and later write beside the layout, by configuration. */
function dockerTags(spool: ArchiveSpool): Map<string, string[]> {
  const found = spool.file("manifest.json") === undefined
    ? undefined
    : Manifests.safeParse(spool.json("manifest.json"));
  const pairs = (found?.data ?? []).map(({ Config, RepoTags }) =>
    [spool.file(Config)?.digest ?? "", RepoTags ?? []] as const
  );
  return new Map(pairs);
}

function indexOf(value: unknown, spool: ArchiveSpool): IndexFile {
  const parsed = IndexFile.safeParse(value);
  if (!parsed.success) throw spool.bad("an index of its OCI layout is not one");
  return parsed.data;
}

const blobName = (digest: string): string => `blobs/sha256/${hexOf(digest)}`;

function checkedFile(digest: string, spool: ArchiveSpool): SpooledFile {
  const file = spool.file(blobName(digest))!;
  if (file.digest !== digest) throw spool.bad(`the blob ${digest} is damaged: its bytes are ${file.digest}`);
  return file;
}

function checkedBytes(digest: string, spool: ArchiveSpool): Uint8Array {
  checkedFile(digest, spool);
  return spool.bytes(blobName(digest));
}
