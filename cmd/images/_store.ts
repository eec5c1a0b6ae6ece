/** What the commands on our own images share: their store, how they are named, and what a person sees of one. */
import type { Command } from "commander";
import { z } from "zod";
import type { Context } from "../../lib/context.ts";
import { HarborError } from "../../lib/errors.ts";
import { platformName } from "../../lib/images/config.ts";
import { buildOptions, platformOfOptions } from "../../lib/images/options.ts";
import { nearest } from "../../lib/suggest.ts";
import { storeFolder } from "../../lib/store/folder.ts";
import { type LayoutStore, openStore } from "../../lib/store/layout.ts";
import type { StoredImage } from "../../lib/store/store.ts";

export const StoreOptions = {
  imageStore: z.string().optional(),
  json: z.boolean().default(false),
  quiet: z.boolean().default(false),
  verbose: z.boolean().default(false),
};

export const PlatformOption = {
  platform: z.string().regex(/^[a-z0-9]+\/[a-z0-9_]+(\/[a-z0-9]+)?$/, "write os/arch, as in linux/amd64").optional(),
};

export const withStoreOptions = (command: Command): Command =>
  command
    .option("--image-store <dir>", "our own images (default: gym-harbor/images in the user's cache)")
    .option("--json", "one JSON object a line")
    .option("-q, --quiet", "only results, warnings and errors")
    .option("-v, --verbose", "also every program that is started and every request");

export const withPlatform = (command: Command): Command =>
  command.option("--platform <os/arch>", "of the images (default: linux/amd64, as builds.platform)");

export const storeOf = ({ imageStore }: { imageStore?: string }, { env, clock }: Context): LayoutStore =>
  openStore(storeFolder(env, imageStore), { clock });

/** `os/arch` that was asked for, else the default of `builds.platform`. */
export const platformOf = (asked: string | undefined, env: Context["env"]): string =>
  asked === undefined ? platformOfOptions(buildOptions({}, env)) : platformName(asked);

/** The image by any of its names or digests. Throws "image.failed" with a near name. */
export async function imageIn(store: LayoutStore, reference: string, platform: string): Promise<StoredImage> {
  const found = await store.find(reference, platform) ?? await byShortDigest(store, reference);
  if (found !== undefined) return found;
  const names = (await store.list()).flatMap((image) => image.names);
  const near = nearest(reference, names.map(shortName));
  throw new HarborError("image.failed", `There is no image ${reference} for ${platform} in ${store.folder}`, {
    hint: near === undefined ? `gym-harbor images pull ${reference}` : `did you mean ${near}? images list shows all`,
  });
}

/** The beginning of a configuration's digest, as `images list` shows it, when only one image has it. */
async function byShortDigest(store: LayoutStore, text: string): Promise<StoredImage | undefined> {
  if (!/^[0-9a-f]{6,63}$/.test(text)) return undefined;
  const found = (await store.list()).filter(({ config }) => hex(config.digest).startsWith(text));
  return found.length === 1 ? found[0] : undefined;
}

export const hex = (digest: string): string => digest.slice("sha256:".length);

/** As people write it: without Docker Hub's host and `library/`. */
export const shortName = (name: string): string => name.replace(/^docker\.io\/(library\/)?/, "");

/** The name to show for an image: one with a tag before a pin. */
export function shownName({ names, manifest }: Pick<StoredImage, "names" | "manifest">): string {
  const name = names.find((one) => !one.includes("@")) ?? names[0];
  return name === undefined ? `<no name> ${hex(manifest.digest).slice(0, 12)}` : shortName(name);
}

/** Bytes of manifest, configuration and layers as they are stored. */
export const sizeOf = ({ manifest, config, layers }: Pick<StoredImage, "manifest" | "config" | "layers">): number =>
  [...new Map([manifest, config, ...layers].map(({ digest, size }) => [digest, size])).values()]
    .reduce((sum, size) => sum + size, 0);

/** What `--json` says of an image. */
export const imageJson = (image: StoredImage) => ({
  names: image.names,
  config_digest: hex(image.config.digest),
  manifest_digest: hex(image.manifest.digest),
  index_digest: image.indexDigest === undefined ? null : hex(image.indexDigest),
  platform: image.platform,
  layers: image.layers.length,
  size_bytes: sizeOf(image),
});
