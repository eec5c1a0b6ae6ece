/**
 * Configurations of base and Compose images, each asked for once per prepare: from its record, else from what this
 * machine holds, else from its registry, else from the engine that pulls it (images §1.3 step 10, §2.3, §2.5).
 */
import { HarborError, isAbort } from "../errors.ts";
import { pool } from "../runtime/pool.ts";
import type { LocalImage } from "../sandbox/provider.ts";
import type { Registry } from "../registry/registry.ts";
import { ImageFile, platformName } from "./config.ts";
import { type ImageRecord, recordFor } from "./records.ts";
import type { JsonObject } from "./record_file.ts";
import { isPinned, parseReference, pinnedTo } from "./reference.ts";

/** An image whose configuration is wanted, by the name in a task's file. */
export interface Wanted {
  reference: string;
  what: "base image" | "Compose image";
}

export interface ConfigurationSources {
  /** `os/arch`. */
  platform: string;
  /** compose-images.json as it was read. */
  records: JsonObject;
  /** What this machine holds; absent where nothing can be asked. */
  local?(reference: string, signal: AbortSignal): Promise<LocalImage | undefined>;
  /** Absent under --offline. */
  registry?: Registry;
  /** Has the engine fetch it, by its own mirrors and credentials; the last resort. */
  fetch?(reference: string, signal: AbortSignal): Promise<LocalImage | undefined>;
  /** Told of each that is not recorded by digest, once it is read or failed. */
  progress?(reference: string, done: number, total: number): void;
}

export interface Configurations {
  known: Map<string, ImageRecord>;
  /** Those of `known` that were not recorded. */
  fresh: Record<string, ImageRecord>;
  /** By reference: "image.failed" with the text of images §2.5. */
  failed: Map<string, HarborError>;
}

/** Registries answer in some 100 ms, and limit how often they are asked. */
const READS_TOGETHER = 8;

/** Throws only the abort and faults of our own. */
export async function readConfigurations(
  wanted: readonly Wanted[],
  sources: ConfigurationSources,
  signal: AbortSignal,
): Promise<Configurations> {
  const found: Configurations = { known: new Map(), fresh: {}, failed: new Map() };
  const distinct = new Map(wanted.map((one) => [one.reference, one]));
  const isKnown = ({ reference }: Wanted) =>
    isPinned(recordFor(sources.records, reference, sources.platform)?.image ?? "");
  const total = [...distinct.values()].filter((one) => !isKnown(one)).length;
  let done = 0;
  const read = async (one: Wanted): Promise<void> => {
    try {
      const { record, fresh } = await readOne(one.reference, sources, signal);
      found.known.set(one.reference, record);
      if (fresh) found.fresh[one.reference] = record;
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof HarborError) || isAbort(error) || error.code === "engine.missing") throw error;
      found.failed.set(one.reference, couldNotRecord(one, error));
    }
    if (!isKnown(one)) sources.progress?.(one.reference, ++done, total);
  };
  await pool(distinct.values(), READS_TOGETHER, read, signal);
  signal.throwIfAborted();
  return found;
}

const couldNotRecord = ({ reference, what }: Wanted, cause: HarborError): HarborError =>
  new HarborError(
    "image.failed",
    `Could not record the configuration of ${what} ${reference}: ${cause.message}`,
    { hint: cause.hint, details: { ...cause.details, reference }, cause },
  );

/** `fresh`: it is worth a record. Throws "image.failed" with the cause alone. */
async function readOne(
  reference: string,
  sources: ConfigurationSources,
  signal: AbortSignal,
): Promise<{ record: ImageRecord; fresh: boolean }> {
  const { platform, registry, fetch } = sources;
  const recorded = recordFor(sources.records, reference, platform);
  if (recorded !== undefined && isPinned(recorded.image)) return { record: recorded, fresh: false };
  const local = await sources.local?.(reference, signal);
  if (local !== undefined && fits(local, platform)) {
    if (recorded !== undefined && recorded.configDigest === local.configDigest) {
      return { record: recorded, fresh: false };
    }
    return { record: recordOfLocal(reference, local), fresh: true };
  }
  if (registry === undefined) {
    if (recorded !== undefined) return { record: recorded, fresh: false };
    const pulled = await fetch?.(reference, signal);
    if (pulled !== undefined) return { record: recordOfLocal(reference, pulled), fresh: true };
    throw absent(reference, local, platform);
  }
  try {
    return { record: await recordOfRemote(reference, registry, platform, signal), fresh: true };
  } catch (error) {
    signal.throwIfAborted();
    const pulled = engineMayKnow(error)
      ? await fetch?.(reference, signal).catch(() => signal.throwIfAborted())
      : undefined;
    if (pulled === undefined || !fits(pulled, platform)) throw error;
    return { record: recordOfLocal(reference, pulled), fresh: true };
  }
}

/**
 * An engine may know a mirror, a login or a certificate that we do not. A registry that says it has no such image, or
 * that it was asked too often, is not asked again by another program.
 */
function engineMayKnow(error: unknown): boolean {
  const status = error instanceof HarborError ? error.details?.status : undefined;
  return status === undefined || status === 401 || status === 403;
}

const fits = (image: LocalImage, platform: string): boolean => platformName(image.platform) === platform;

function absent(reference: string, local: LocalImage | undefined, platform: string): HarborError {
  const why = local === undefined
    ? `neither recorded nor on this machine`
    : `${reference} resolved to ${local.platform}, not ${platform}`;
  return new HarborError("image.failed", why, {
    hint: "run gym-harbor bundle import, or prepare the dataset where there is a network",
  });
}

/** Pinned where a registry gave it a digest under the very name that is asked for. */
function recordOfLocal(reference: string, local: LocalImage): ImageRecord {
  return {
    image: isPinned(reference) ? reference : localPin(reference, local.repoDigests) ?? reference,
    platform: platformName(local.platform),
    config: local.config,
    configDigest: local.configDigest,
  };
}

function localPin(written: string, repoDigests: readonly string[]): string | undefined {
  const wanted = parseReference(written);
  for (const one of repoDigests) {
    const { host, repository, digest } = parseReference(one);
    if (host === wanted.host && repository === wanted.repository && digest !== undefined) {
      return pinnedTo(wanted, digest);
    }
  }
  return undefined;
}

async function recordOfRemote(
  written: string,
  registry: Registry,
  platform: string,
  signal: AbortSignal,
): Promise<ImageRecord> {
  const image = await registry.image(parseReference(written), platform, signal);
  const file = ImageFile.parse(JSON.parse(new TextDecoder().decode(image.configBytes)));
  return {
    image: isPinned(written) ? written : image.pinned,
    platform: image.platform,
    config: file.config ?? {},
    configDigest: image.config.digest,
    ...(image.indexDigest !== undefined && { manifestDigest: image.manifest.digest }),
  };
}
