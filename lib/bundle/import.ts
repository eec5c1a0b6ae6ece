/**
 * The images of a bundle onto a machine: into an engine by its own load, or into a store of ours. What is there already
 * is left alone, so an import that was cut off is simply run again. The bundle itself is only read.
 */
import { HarborError } from "../errors.ts";
import type { SandboxProvider } from "../sandbox/provider.ts";
import { copyImage } from "../store/copy.ts";
import type { ImageStore, StoredImage } from "../store/store.ts";
import type { Bundle, BundleImage } from "./schema.ts";

export interface Taken {
  image: BundleImage;
  /** `there`: nothing had to be done. */
  outcome: "taken" | "there";
}

/** Takes one image in, and says whether that was needed. */
export type TakeImage = (image: BundleImage, stored: StoredImage, signal: AbortSignal) => Promise<Taken["outcome"]>;

/** Every image, one after the other. Throws "image.failed" for one that the bundle lacks, and what taking in throws. */
export async function* importImages(
  { images, platform }: Bundle,
  from: ImageStore,
  take: TakeImage,
  signal: AbortSignal,
): AsyncGenerator<Taken> {
  for (const image of images) {
    signal.throwIfAborted();
    const stored = await from.find(image.manifest_digest, platform);
    if (stored === undefined) {
      throw new HarborError("image.failed", `${image.refs[0]} is not whole in ${from.folder}`, {
        hint: "gym-harbor bundle verify names the file that is missing",
      });
    }
    yield { image, outcome: await take(image, stored, signal) };
  }
}

/**
 * Into an engine: under the alias that a run of the bundle looks for, and under every plain name that the engine does not
 * give to another image already.
 */
export function intoEngine(provider: SandboxProvider, from: ImageStore): TakeImage {
  return async (image, stored, signal) => {
    const has = await provider.local?.(image.alias, signal);
    if (has?.configDigest === image.config_digest) return "there";
    const free: string[] = [];
    for (const name of image.refs.filter((ref) => !ref.includes("@"))) {
      if (await provider.local?.(name, signal) === undefined) free.push(name);
    }
    await provider.takeIn!(stored, from, [image.alias, ...free], signal);
    return "taken";
  };
}

/** Into a store of ours, under every name; blobs are checked on their way. */
export function intoStore(own: ImageStore, from: ImageStore): TakeImage {
  return async (image, stored, signal) => {
    const found = await Promise.all(image.refs.map((ref) => own.find(ref, stored.platform)));
    if (found.every((one) => one?.config.digest === image.config_digest)) return "there";
    await copyImage(stored, from, own, image.refs, signal);
    return "taken";
  };
}
