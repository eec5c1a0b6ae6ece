/**
 * Images by name. What the engine has is used as it is, under the name or an alias of it; what our own store has is
 * loaded into the engine; only then is a registry asked, and never offline.
 */
import { HarborError } from "../lib/errors.ts";
import { localAlias } from "../lib/images/alias.ts";
import type { ImageNeed, PreparedImage } from "../lib/sandbox/provider.ts";
import type { ImageStore, StoredImage } from "../lib/store/store.ts";
import { type EngineName, fullReference } from "./_oci_argv.ts";
import type { SandboxDeps } from "./_oci_deps.ts";
import { loadImage } from "./_oci_images_io.ts";
import {
  agrees,
  configDigestOf,
  type Inspected,
  inspectImage,
  pinned,
  platformOfImage,
  prepared,
} from "./_oci_image.ts";

const BUNDLE_HINT = "gym-harbor bundle import BUNDLE_DIR brings the images of a bundle";

/** `hb__<context hash>` without a registry before it: no registry has it. */
const isBuilt = (reference: string): boolean => /^hb__[0-9a-f]{32}(:|$)/.test(reference);

export type NamedNeed = Extract<ImageNeed["source"], { kind: "named" }>;

export interface NamedDeps extends SandboxDeps {
  offline: boolean;
  /** `os/arch` of the run; undefined takes what the engine has. */
  platform: string | undefined;
  store: ImageStore | undefined;
  /** `os/arch` of what is looked for in the store. */
  storePlatform: string;
  /** Asks the registry by the engine's own client. Throws "image.failed". */
  pull(reference: string, signal: AbortSignal): Promise<void>;
  /**
   * Asks it by our own client, into our store, for what the engine's cannot reach: it knows no mirror and no plain HTTP but
   * by the configuration of its daemon. Absent where there is no such client or no store to write.
   */
  fetch?: (reference: string, signal: AbortSignal) => Promise<StoredImage>;
}

/** Throws "image.failed"; `details.missing` is the reference where nothing is wrong but that it is not here. */
export async function namedImage(deps: NamedDeps, need: NamedNeed, signal: AbortSignal): Promise<PreparedImage> {
  const found = await here(deps, need, signal) ?? await stored(deps, need, signal) ?? await pulled(deps, need, signal);
  const platform = platformOfImage(found.image);
  if (deps.platform !== undefined && platform !== deps.platform) {
    throw new HarborError("image.failed", `${need.reference} resolved to ${platform}, not ${deps.platform}`, {
      hint:
        `remove it so that the right one can be pulled (${deps.program.path} rmi ${found.name}), or set builds.platform`,
    });
  }
  return {
    ...prepared(found.image, pinned(found.image, need.reference)),
    ...(found.name !== need.reference && { alias: found.name }),
  };
}

interface Found {
  image: Inspected;
  name: string;
}

/** What the engine has. An image of the wanted configuration wins over one that only has the name. */
async function here(deps: NamedDeps, need: NamedNeed, signal: AbortSignal): Promise<Found | undefined> {
  let byName: Found | undefined;
  for (const name of namesOf(deps.program.engine, need)) {
    const image = await inspectImage(deps, name, signal);
    if (image === undefined) continue;
    const config = need.configDigest === undefined ? undefined : configDigestOf(image);
    if (config !== undefined && config === need.configDigest) return { image, name };
    if (name === need.reference) byName = { image, name };
    else if (config === undefined && agrees(image, need.reference)) byName ??= { image, name };
    if (byName !== undefined && config === undefined) return byName;
  }
  return byName;
}

/** Names to look under, in order and each once. podman knows what was tagged without a host only by its short name. */
export function namesOf(engine: EngineName, { reference, aliases = [], configDigest }: NamedNeed): string[] {
  const names = [reference, ...(configDigest === undefined ? [] : [localAlias(reference, configDigest)]), ...aliases];
  return [...new Set(engine === "podman" ? names.flatMap((name) => [name, ...shortName(name)]) : names)];
}

const shortName = (reference: string): string[] =>
  /^docker\.io\/library\/[^/@]+$/.test(reference) ? [reference.slice("docker.io/library/".length)] : [];

/** What our store has. A store that is damaged costs a pull where one is possible. */
async function stored(deps: NamedDeps, need: NamedNeed, signal: AbortSignal): Promise<Found | undefined> {
  const { store, storePlatform } = deps;
  if (store === undefined) return undefined;
  const { reference, configDigest, aliases = [] } = need;
  for (const name of [reference, ...(configDigest === undefined ? [] : [configDigest]), ...aliases]) {
    const found = await store.find(name, storePlatform);
    if (found === undefined || (configDigest !== undefined && found.config.digest !== configDigest)) continue;
    try {
      return await loaded(deps, reference, found, signal);
    } catch (error) {
      signal.throwIfAborted();
      if (deps.offline || !(error instanceof HarborError)) throw error;
      deps.emit({
        kind: "warning",
        text: `${reference} is pulled, since our store does not give it: ${error.message}`,
      });
      return undefined;
    }
  }
  return undefined;
}

async function loaded(deps: NamedDeps, reference: string, image: StoredImage, signal: AbortSignal): Promise<Found> {
  await loadImage(deps, image, deps.store!, [reference], signal);
  const name = localAlias(reference, image.config.digest);
  const found = await inspectImage(deps, name, signal);
  if (found !== undefined) return { image: found, name };
  throw new HarborError(
    "image.failed",
    `Image ${reference} was loaded as ${name}, yet ${deps.program.path} does not know it`,
  );
}

async function pulled(deps: NamedDeps, need: NamedNeed, signal: AbortSignal): Promise<Found> {
  const { reference } = need;
  if (isBuilt(reference)) {
    throw new HarborError(
      "image.failed",
      `Image ${reference} is not in ${deps.program.path}: it was built, never pushed`,
      {
        hint: deps.offline ? BUNDLE_HINT : "gym-harbor dataset prepare builds it again",
        details: { reference, missing: reference },
      },
    );
  }
  if (deps.offline) {
    throw new HarborError("image.failed", `Image ${reference} is not on this machine, and offline nothing is pulled`, {
      hint: BUNDLE_HINT,
      details: { reference, missing: reference },
    });
  }
  try {
    await deps.pull(reference, signal);
  } catch (error) {
    if (deps.fetch === undefined || !(error instanceof HarborError) || error.details?.kind !== "unreachable") {
      throw error;
    }
    return await loaded(deps, reference, await deps.fetch(reference, signal), signal);
  }
  for (const name of new Set([reference, fullReference(reference)])) {
    const image = await inspectImage(deps, name, signal);
    if (image !== undefined) return { image, name: reference };
  }
  throw new HarborError("image.failed", `Image ${reference} was pulled, yet ${deps.program.path} does not know it`);
}
