/**
 * Images of the store as one docker-archive, which `docker load` (20.10, 28) and `podman load` (4.3) take alike: the
 * configuration byte for byte, so that the image's id is its digest on both; gzip layers as they are. The same images
 * give the same bytes. A blob that is damaged ends the archive with an error, before its end.
 */
import { createHash } from "node:crypto";
import { Buffer } from "node:buffer";
import { createReadStream } from "node:fs";
import { open } from "node:fs/promises";
import { createZstdDecompress } from "node:zlib";
import { errno } from "../errors.ts";
import { END_OF_ARCHIVE, headerBlocks, padding } from "../unpack/tar_header.ts";
import { hexOf } from "./blobs.ts";
import { absentBlob, damaged } from "./damage.ts";
import { compressionOf } from "./media.ts";
import { piecesFrom } from "./sources.ts";
import type { ImageStore, StoredImage } from "./store.ts";

export interface ArchivedImage {
  image: Pick<StoredImage, "config" | "layers">;
  /** `name:tag` as engines show it; none gives an image without a name. */
  tags: string[];
}

type Blobs = Pick<ImageStore, "blobPath" | "readBlob" | "readOnly" | "folder">;

/** Throws "image.failed" where a blob is missing or damaged. */
export async function* dockerArchive(images: readonly ArchivedImage[], store: Blobs): AsyncGenerator<Uint8Array> {
  const written = new Set<string>();
  const manifest: unknown[] = [];
  for (const { image, tags } of images) {
    const config = `${hexOf(image.config.digest)}.json`;
    const layers: string[] = [];
    for (const layer of image.layers) {
      const { name, blocks } = await layerEntry(layer, store);
      layers.push(name);
      if (written.has(name)) continue;
      written.add(name);
      yield* blocks();
    }
    if (!written.has(config)) yield* entry(config, store.readBlob(image.config.digest));
    written.add(config);
    manifest.push({ Config: config, RepoTags: tags.length === 0 ? null : tags, Layers: layers });
  }
  yield* entry("manifest.json", new TextEncoder().encode(JSON.stringify(manifest)));
  yield new Uint8Array(END_OF_ARCHIVE);
}

function* entry(name: string, bytes: Uint8Array): Generator<Uint8Array> {
  yield new Uint8Array(headerBlocks({ name, size: bytes.length }));
  yield bytes;
  yield new Uint8Array(padding(bytes.length));
}

type Layer = StoredImage["layers"][number];

/** zstd is unpacked: docker 20.10 cannot read it. That costs a reading before, for the length. */
async function layerEntry(
  layer: Layer,
  store: Blobs,
): Promise<{ name: string; blocks: () => AsyncGenerator<Uint8Array> }> {
  const path = store.blobPath(layer.digest);
  const compression = compressionOf(await firstBytes(layer, path));
  if (compression !== "zstd") {
    const name = `${hexOf(layer.digest)}.tar${compression === "gzip" ? ".gz" : ""}`;
    return { name, blocks: () => blocksOf(name, layer.size, pieces(layer, store)) };
  }
  const unzstd = () => createReadStream(path).pipe(createZstdDecompress());
  const name = `${hexOf(layer.diffId)}.tar`;
  return {
    name,
    blocks: async function* () {
      let size = 0;
      for await (const chunk of unzstd()) size += (chunk as Buffer).length;
      yield* blocksOf(name, size, unzstd() as AsyncIterable<Uint8Array>);
    },
  };
}

async function* blocksOf(name: string, size: number, content: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  yield new Uint8Array(headerBlocks({ name, size }));
  yield* content;
  yield new Uint8Array(padding(size));
}

/** A blob in pieces, checked when the last one was given. */
async function* pieces({ digest, size }: Layer, store: Blobs): AsyncGenerator<Uint8Array> {
  const path = store.blobPath(digest);
  const hash = createHash("sha256");
  const file = await open(path, "r");
  let length = 0;
  try {
    for await (const chunk of piecesFrom(file)) {
      hash.update(chunk);
      length += chunk.length;
      if (length > size) break;
      yield chunk;
    }
  } finally {
    await file.close();
  }
  const found = `sha256:${hash.digest("hex")}`;
  if (found !== digest) {
    throw damaged(digest, found, { path, readOnly: store.readOnly || !path.startsWith(`${store.folder}/`) });
  }
}

async function firstBytes({ digest }: Layer, path: string): Promise<Uint8Array> {
  try {
    const file = await open(path, "r");
    try {
      const { buffer, bytesRead } = await file.read(Buffer.alloc(4), 0, 4, 0);
      return buffer.subarray(0, bytesRead);
    } finally {
      await file.close();
    }
  } catch (cause) {
    if (errno(cause) === "ENOENT") throw absentBlob(digest, path, cause);
    throw cause;
  }
}
