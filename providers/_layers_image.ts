/** An image of our store as a sandbox starts it: where its trees lie, and what its configuration says. */
import { envOf, type ImageConfig } from "../lib/images/config.ts";
import { isPinned } from "../lib/images/reference.ts";
import type { LocalImage, PreparedImage } from "../lib/sandbox/provider.ts";
import type { StoredImage } from "../lib/store/store.ts";
import type { LayerStack } from "./_layers_layout.ts";

/** What the provider keeps of a prepared image. */
export interface LayersImage {
  stack: LayerStack;
  /** Of the configuration blob. */
  configDigest: string;
}

/** How an image starts by its configuration. Pure. */
export function preparedFrom(
  reference: string,
  image: StoredImage,
  stack: LayerStack,
  notes: readonly string[],
): PreparedImage {
  const config: ImageConfig = image.file.config ?? {};
  return {
    reference,
    workdir: config.WorkingDir || "/",
    env: envOf(config),
    user: config.User ?? "",
    entrypoint: config.Entrypoint ?? [],
    config,
    notes: [...notes],
    handle: { stack, configDigest: image.config.digest } satisfies LayersImage,
  };
}

/** What the store has, told as every provider tells it. Pure. */
export const localImage = ({ config, names, file, platform }: StoredImage): LocalImage => ({
  configDigest: config.digest,
  repoDigests: names.filter(isPinned),
  config: file.config ?? {},
  platform,
});
