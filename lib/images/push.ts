/** From our own store to a registry: what it lacks, the manifest last. */
import { openAsBlob } from "node:fs";
import { attempting } from "../errors.ts";
import type { Emit } from "../events.ts";
import type { RegistryWriter } from "../registry/registry.ts";
import type { ImageStore, StoredImage } from "../store/store.ts";
import { parseReference, type Reference } from "./reference.ts";

export interface PushDeps {
  registry: RegistryWriter;
  store: ImageStore;
}

/**
 * Sends an image of the store under `reference` and returns the reference by digest. Throws HarborError "image.failed"
 * `Cannot push <reference>: <cause>`, or the signal's reason.
 */
export async function pushImage(
  image: StoredImage,
  reference: string | Reference,
  { registry, store }: PushDeps,
  signal: AbortSignal,
  emit: Emit,
): Promise<string> {
  const named = typeof reference === "string" ? parseReference(reference) : reference;
  const blobs = [image.config, ...image.layers];
  const total = blobs.reduce((all, { size }) => all + size, 0);
  let bytes = 0;
  const tell = (state: "begun" | "going" | "done") => emit({ kind: "push", image: named.written, bytes, total, state });
  try {
    tell("begun");
    const pinned = await registry.push(
      named,
      {
        manifest: image.manifest,
        manifestBytes: store.readBlob(image.manifest.digest),
        blobs,
        open: ({ digest }) => openAsBlob(store.blobPath(digest)),
      },
      signal,
      ({ size }) => {
        bytes += size;
        tell("going");
      },
    );
    bytes = total;
    tell("done");
    return pinned;
  } catch (thrown) {
    throw attempting(`Cannot push ${named.written}`, "image.failed", thrown);
  }
}
