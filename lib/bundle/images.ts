/**
 * Where the images of a bundle come from: a store on this machine, else an engine that holds them, else their registry.
 * What is found is told before a byte moves, so that its size is known and what cannot be carried is refused at once.
 */
import { HarborError } from "../errors.ts";
import type { Emit } from "../events.ts";
import { pullImage } from "../images/pull.ts";
import { parseReference } from "../images/reference.ts";
import { isForeign } from "../registry/manifest.ts";
import type { Descriptor, Registry, RemoteImage } from "../registry/registry.ts";
import { pool } from "../runtime/pool.ts";
import type { LocalImage } from "../sandbox/provider.ts";
import type { ImageStore, StoredImage } from "../store/store.ts";
import { copyFile, type Progress } from "./copy.ts";

/** An image that a task starts. */
export interface WantedImage {
  /** What is started first, then every other spelling that must find it. */
  refs: string[];
  /** From records: what it must be. */
  configDigest?: string;
}

/** An engine as a source of images that no registry has. */
export interface ImageEngine {
  readonly name: string;
  local(reference: string, signal: AbortSignal): Promise<LocalImage | undefined>;
  /** Brings the image into a store, its configuration byte for byte. */
  saveInto(reference: string, store: ImageStore, names: string[], signal: AbortSignal): Promise<StoredImage>;
}

export interface ImageSources {
  platform: string;
  /** Asked in this order. */
  stores: ImageStore[];
  engines: ImageEngine[];
  /** Absent under --offline. */
  registry?: Registry;
}

export type Found =
  | { from: "store"; store: ImageStore; image: StoredImage }
  | { from: "engine"; engine: ImageEngine; reference: string; image: LocalImage }
  | { from: "registry"; image: RemoteImage };

export interface FoundImage {
  wanted: WantedImage;
  found: Found;
}

/** Registries answer in some 100 ms. */
const LOOKS_TOGETHER = 8;

/**
 * Where each image is. Throws "image.failed" that lists every image which is nowhere and every one that holds layers
 * which may not be handed on.
 */
export async function findImages(
  wanted: readonly WantedImage[],
  sources: ImageSources,
  signal: AbortSignal,
): Promise<FoundImage[]> {
  const all = new Map<WantedImage, Found | HarborError>();
  await pool(wanted, LOOKS_TOGETHER, async (one) => {
    try {
      all.set(one, await findOne(one, sources, signal));
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof HarborError) || error.code !== "image.failed") throw error;
      all.set(one, error);
    }
  }, signal);
  signal.throwIfAborted();
  const images = wanted.map((one) => ({ wanted: one, found: all.get(one)! }));
  refuseFailed(images);
  const found = images as FoundImage[];
  refuseForeign(found);
  return found;
}

async function findOne(wanted: WantedImage, sources: ImageSources, signal: AbortSignal): Promise<Found> {
  const { platform, stores, engines, registry } = sources;
  const fits = (digest: string): boolean => wanted.configDigest === undefined || wanted.configDigest === digest;
  for (const store of stores) {
    for (const reference of [...wanted.refs, ...(wanted.configDigest === undefined ? [] : [wanted.configDigest])]) {
      const image = await store.find(reference, platform);
      if (image !== undefined && fits(image.config.digest)) return { from: "store", store, image };
    }
  }
  for (const engine of engines) {
    for (const reference of wanted.refs) {
      const image = await engine.local(reference, signal);
      if (image === undefined || image.platform !== platform || !fits(image.configDigest)) continue;
      return { from: "engine", engine, reference, image };
    }
  }
  const [first] = wanted.refs as [string];
  if (registry === undefined || isLocalOnly(first)) throw nowhere(first, sources);
  return { from: "registry", image: await registry.image(parseReference(first), platform, signal) };
}

/** `hb__<hash>` without a repository was built here and never pushed. */
const isLocalOnly = (reference: string): boolean => /^(?:localhost\/)?hb__[0-9a-f]+/.test(reference);

const nowhere = (reference: string, { stores, engines }: ImageSources): HarborError => {
  const asked = [...stores.map(({ folder }) => `the store ${folder}`), ...engines.map(({ name }) => name)];
  return new HarborError(
    "image.failed",
    `${reference} is not on this machine (asked: ${asked.join(", ") || "nobody"})`,
    {
      hint: isLocalOnly(reference)
        ? "build it first: gym-harbor dataset prepare, with the sandbox whose engine shall build"
        : "fetch it first: gym-harbor images pull, or export where there is a network",
    },
  );
};

function refuseFailed(images: readonly { wanted: WantedImage; found: Found | HarborError }[]): void {
  const failed = images.flatMap(({ found }) => (found instanceof HarborError ? [found] : []));
  if (failed.length === 0) return;
  if (failed.length === 1) throw failed[0]!;
  throw new HarborError(
    "image.failed",
    [`${failed.length} images cannot be had:`, ...failed.map(({ message }) => `  ${message}`)].join("\n"),
    { hint: failed[0]!.hint, details: { images: failed.map(({ message, details }) => ({ message, ...details })) } },
  );
}

/** Layers that a registry does not hold (Windows bases, licensed content) and nobody may hand on. */
function refuseForeign(images: readonly FoundImage[]): void {
  const lines = images.flatMap(({ wanted, found }) =>
    found.from === "engine"
      ? []
      : found.image.layers.filter(isForeign).map(({ digest }) => `  ${wanted.refs[0]}: ${digest}`)
  );
  if (lines.length === 0) return;
  throw new HarborError("image.failed", ["layers that may not be handed on:", ...lines].join("\n"), {
    hint: "leave out the tasks that start these images (--exclude-tasks), or replace their base",
  });
}

/** The blobs of an image that a store or a registry holds; an engine tells its size only when it saves. */
export const blobsOf = ({ found }: FoundImage): Descriptor[] =>
  found.from === "engine" ? [] : [found.image.manifest, found.image.config, ...found.image.layers];

/** Digest of the manifest, where it is known before the image is brought. */
export const manifestOf = ({ found }: FoundImage): string | undefined =>
  found.from === "engine" ? undefined : found.image.manifest.digest;

/** Brings one image into the layout of a bundle, under all of its names. */
export async function carryImage(
  { wanted, found }: FoundImage,
  target: ImageStore,
  sources: ImageSources,
  progress: Progress,
  emit: Emit,
): Promise<StoredImage> {
  const { signal } = progress;
  switch (found.from) {
    case "engine":
      return await found.engine.saveInto(found.reference, target, wanted.refs, signal);
    case "registry": {
      const { registry, platform } = sources;
      const deps = { registry: registry!, store: target, platform, names: wanted.refs };
      const image = await pullImage(found.image.reference, deps, signal, emit);
      progress.passed(sizeOf(image));
      return image;
    }
    case "store": {
      const { image, store } = found;
      if (store.folder === target.folder) return image; // an earlier try brought it, and it was hashed
      for (const { digest } of [image.config, ...image.layers]) {
        await copyFile(store.blobPath(digest), target.blobPath(digest), {
          ...progress,
          mode: 0o644,
          expected: digest.slice("sha256:".length),
        });
      }
      const manifestBytes = store.readBlob(image.manifest.digest);
      progress.passed(manifestBytes.length);
      return await target.add({ manifest: image.manifest, manifestBytes, indexDigest: image.indexDigest }, wanted.refs);
    }
  }
}

/** Bytes of manifest, configuration and compressed layers. */
export const sizeOf = (image: Pick<RemoteImage, "manifest" | "config" | "layers">): number =>
  [image.manifest, image.config, ...image.layers].reduce((sum, { size }) => sum + size, 0);
