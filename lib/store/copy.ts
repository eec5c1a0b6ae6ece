/** An image from one store into another. */
import { open } from "node:fs/promises";
import { errno } from "../errors.ts";
import { absentBlob } from "./damage.ts";
import { piecesFrom } from "./sources.ts";
import type { ImageStore, StoredImage } from "./store.ts";

/** Takes what `to` does not have yet, checks it, and names the image there. Throws "image.failed". */
export async function copyImage(
  image: StoredImage,
  from: ImageStore,
  to: ImageStore,
  names: string[],
  signal: AbortSignal,
): Promise<StoredImage> {
  for (const blob of [image.config, ...image.layers]) {
    await to.take(blob, (offset) => Promise.resolve(piecesOf(from, blob.digest, offset)), signal);
  }
  const { manifest, indexDigest } = image;
  return await to.add({ manifest, manifestBytes: from.readBlob(manifest.digest), indexDigest }, names);
}

async function* piecesOf(store: ImageStore, digest: string, offset: number): AsyncGenerator<Uint8Array> {
  const path = store.blobPath(digest);
  const file = await open(path, "r").catch((cause) => {
    throw errno(cause) === "ENOENT" ? absentBlob(digest, path, cause) : cause;
  });
  try {
    yield* piecesFrom(file, offset);
  } finally {
    await file.close();
  }
}
