/**
 * `compose-images.json`: what is known about an image by the name that a task gives it, so that the next run asks nobody
 * (images §2, task-format §6.2). Entries of NeMo Gym and of other versions are read as far as they parse; what is not
 * understood stays where it is.
 */
import { z } from "zod";
import { ImageConfig, platformName, platformOf } from "./config.ts";
import { isObject, type JsonObject } from "./record_file.ts";

export const COMPOSE_IMAGES = "compose-images.json";

/** What an image is, settled: what is started, and how its configuration starts it. */
export interface ImageRecord {
  /** Pinned reference; as written for an image that only this machine has. */
  image: string;
  /** `os/arch`; undefined for an entry that does not tell. */
  platform?: string;
  config: ImageConfig;
  /** `sha256:…`. */
  configDigest?: string;
  manifestDigest?: string;
  /** Of a built image: inputsDigest() of what it was built from. */
  inputsDigest?: string;
}

const CONFIG_KEYS = ["Cmd", "Entrypoint", "Env", "ExposedPorts", "Healthcheck", "User", "WorkingDir", "Volumes"];

/** An entry on disk: configuration nested (ours) or beside the other fields (older NeMo Gym). */
const Entry = z.looseObject({
  image: z.string().min(1),
  os: z.string().optional(),
  architecture: z.string().optional(),
  platform: z.string().optional(),
  config: ImageConfig.optional(),
  config_digest: z.string().optional(),
  manifest_digest: z.string().optional(),
  inputs_digest: z.string().optional(),
});

/** An entry as far as it parses; undefined for one that names no image. */
export function readRecord(entry: unknown): ImageRecord | undefined {
  const parsed = Entry.safeParse(entry);
  if (!parsed.success) return undefined;
  const { data } = parsed;
  const flat = ImageConfig.safeParse(
    Object.fromEntries(CONFIG_KEYS.flatMap((key) => key in data ? [[key, data[key]]] : [])),
  );
  const platform = data.os !== undefined && data.architecture !== undefined
    ? platformOf({ os: data.os, architecture: data.architecture })
    : data.platform === undefined
    ? undefined
    : platformName(data.platform);
  return {
    image: data.image,
    ...(platform !== undefined && { platform }),
    config: data.config ?? (flat.success ? flat.data : {}),
    ...(data.config_digest !== undefined && { configDigest: data.config_digest }),
    ...(data.manifest_digest !== undefined && { manifestDigest: data.manifest_digest }),
    ...(data.inputs_digest !== undefined && { inputsDigest: data.inputs_digest }),
  };
}

/** The record of `reference` for a platform: the entry itself, or the one that it keeps for another platform. */
export function recordFor(file: JsonObject, reference: string, platform: string): ImageRecord | undefined {
  const entry = Object.hasOwn(file, reference) ? file[reference] : undefined;
  const record = readRecord(entry);
  if (record !== undefined && (record.platform === undefined || record.platform === platform)) return record;
  const others = isObject(entry) && isObject(entry.other_platforms) ? entry.other_platforms : {};
  return Object.hasOwn(others, platform) ? readRecord({ platform, ...others[platform] as JsonObject }) : undefined;
}

/**
 * `file` with these records. Fields of an entry that we do not know stay; an entry for another platform moves below
 * `other_platforms`, so that two platforms in turn do not ask each time.
 */
export function withRecords(file: JsonObject, records: Readonly<Record<string, ImageRecord>>): JsonObject {
  const merged = { ...file };
  for (const [reference, record] of Object.entries(records)) {
    const found = Object.hasOwn(merged, reference) ? merged[reference] : undefined;
    merged[reference] = withRecord(isObject(found) ? found : {}, record);
  }
  return merged;
}

const OURS = new Set([
  ...["image", "os", "architecture", "platform", "config", "config_digest", "manifest_digest", "inputs_digest"],
  ...CONFIG_KEYS,
]);

function withRecord(found: JsonObject, record: ImageRecord): JsonObject {
  const { other_platforms, ...entry } = found;
  const others = isObject(other_platforms) ? { ...other_platforms } : {};
  const before = readRecord(entry);
  const moved = before?.platform !== undefined && record.platform !== undefined && before.platform !== record.platform;
  if (moved) others[before.platform!] = Object.fromEntries(Object.entries(entry).filter(([key]) => OURS.has(key)));
  if (record.platform !== undefined) delete others[record.platform];
  const kept = Object.entries(entry).filter(([key]) => !OURS.has(key));
  return {
    ...Object.fromEntries(kept),
    ...entryOf(record),
    ...(Object.keys(others).length > 0 && { other_platforms: others }),
  };
}

function entryOf(record: ImageRecord): JsonObject {
  const [os, architecture] = record.platform?.split("/") ?? [];
  return {
    image: record.image,
    ...(os !== undefined && { os }),
    ...(architecture !== undefined && { architecture }),
    config: Object.fromEntries(
      CONFIG_KEYS.flatMap((key) => isEmpty(record.config[key]) ? [] : [[key, record.config[key]]]),
    ),
    ...(record.configDigest !== undefined && { config_digest: record.configDigest }),
    ...(record.manifestDigest !== undefined && { manifest_digest: record.manifestDigest }),
    ...(record.inputsDigest !== undefined && { inputs_digest: record.inputsDigest }),
  };
}

const isEmpty = (value: unknown): boolean =>
  value === undefined || value === null || value === "" ||
  (typeof value === "object" && Object.keys(value).length === 0);
