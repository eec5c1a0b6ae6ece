/**
 * Makes room in a store: what no image names, images that were not used for a time, and the longest unused ones until
 * the store is small enough. What a living process uses, and what was taken in moments ago, stays. Entries of
 * index.json that others wrote stay as well, with their blobs.
 */
import { lstatSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { messageOf } from "../errors.ts";
import type { Clock } from "../runtime/clock.ts";
import { PARTIAL } from "./blobs.ts";
import { withoutImages } from "./index_file.ts";
import type { LayoutStore } from "./layout.ts";
import { heldIds } from "./leases.ts";
import { lastUse, usePath } from "./use.ts";

/** A pull may take this long between its first blob and its name. */
export const GRACE_MS = 24 * 3_600_000;
/** Whoever has just found or taken an image may be about to use it. */
export const RECENT_MS = 3_600_000;

export interface GcOptions {
  /** Images unused for longer go. */
  olderThanMs?: number;
  /** The longest unused images go until the blobs take no more than this. */
  maxBytes?: number;
  dryRun: boolean;
}

export interface GcImage {
  manifestDigest: string;
  names: string[];
  /** All of its blobs. */
  blobs: { digest: string; size: number }[];
  usedAtMs: number;
}

export interface GcBlob {
  digest: string;
  size: number;
  changedAtMs: number;
}

export interface GcFacts {
  /** Of ours. */
  images: GcImage[];
  blobs: GcBlob[];
  /** Digests that entries of others lead to, and entries of ours that cannot be read. */
  foreign: Set<string>;
  held: Set<string>;
  nowMs: number;
}

export interface GcPlan {
  images: (GcImage & { reason: "unused" | "unnamed" | "size" })[];
  blobs: GcBlob[];
  freedBytes: number;
  /** Bytes that stay. */
  keptBytes: number;
}

/** Pure: what goes. */
export function planGc(facts: GcFacts, { olderThanMs, maxBytes }: Omit<GcOptions, "dryRun">): GcPlan {
  const { nowMs, held } = facts;
  const unusedFor = (image: GcImage): number => nowMs - image.usedAtMs;
  const free = facts.images.filter((image) => !held.has(image.manifestDigest) && unusedFor(image) > RECENT_MS).sort((
    a,
    b,
  ) => a.usedAtMs - b.usedAtMs);
  const gone = new Map<string, GcPlan["images"][number]>();
  for (const image of free) {
    if (olderThanMs !== undefined && unusedFor(image) > olderThanMs) {
      gone.set(image.manifestDigest, { ...image, reason: "unused" });
    } else if (image.names.length === 0 && unusedFor(image) > GRACE_MS) {
      gone.set(image.manifestDigest, { ...image, reason: "unnamed" });
    }
  }
  let blobs = unneeded(facts, gone);
  if (maxBytes !== undefined) {
    for (const image of free) {
      if (total(facts.blobs) - total(blobs) <= maxBytes) break;
      if (gone.has(image.manifestDigest)) continue;
      gone.set(image.manifestDigest, { ...image, reason: "size" });
      blobs = unneeded(facts, gone);
    }
  }
  const freedBytes = total(blobs);
  return { images: [...gone.values()], blobs, freedBytes, keptBytes: total(facts.blobs) - freedBytes };
}

/** Blobs that no image needs any more once these are gone. */
function unneeded({ images, blobs, foreign, nowMs }: GcFacts, gone: ReadonlyMap<string, unknown>): GcBlob[] {
  const needed = new Set(
    images.filter(({ manifestDigest }) => !gone.has(manifestDigest)).flatMap((image) =>
      image.blobs.map(({ digest }) => digest)
    ),
  );
  const ofGone = new Set(
    images.filter(({ manifestDigest }) => gone.has(manifestDigest)).flatMap((image) =>
      image.blobs.map(({ digest }) => digest)
    ),
  );
  return blobs.filter(({ digest, changedAtMs }) => {
    if (needed.has(digest) || foreign.has(digest)) return false;
    return nowMs - changedAtMs > (ofGone.has(digest) ? RECENT_MS : GRACE_MS);
  });
}

const total = (blobs: readonly { size: number }[]): number => blobs.reduce((sum, { size }) => sum + size, 0);

export interface GcReport extends GcPlan {
  /** What could not be removed. */
  failed: { path: string; reason: string }[];
}

/** Carries a plan out under the lock of the index, where it is made again from what is there then. Throws "image.failed". */
export async function collectGarbage(store: LayoutStore, options: GcOptions, clock: Clock): Promise<GcReport> {
  if (options.dryRun) return { ...planGc(await factsOf(store, clock), options), failed: [] };
  const failed: GcReport["failed"] = [];
  let plan: GcPlan | undefined;
  await store.update(async (index) => {
    const found = planGc(await factsOf(store, clock), options);
    plan = found;
    return withoutImages(index, new Set(found.images.map(({ manifestDigest }) => manifestDigest)));
  }, () => {
    // Still under the lock: an image that is being added looks for its blobs before or after, never in between.
    for (const { digest } of plan!.blobs) remove(store.blobPath(digest), failed);
    for (const { manifestDigest } of plan!.images) remove(usePath(store.folder, manifestDigest), failed);
  });
  for (const path of leftovers(store.folder, clock)) remove(path, failed);
  return { ...plan!, failed };
}

function remove(path: string, failed: GcReport["failed"]): void {
  try {
    rmSync(path, { recursive: true, force: true });
  } catch (error) {
    failed.push({ path, reason: messageOf(error) });
  }
}

async function factsOf(store: LayoutStore, clock: Clock): Promise<GcFacts> {
  const { images, others } = await store.entries();
  return {
    images: images.map((image): GcImage => ({
      manifestDigest: image.manifest.digest,
      names: image.names,
      blobs: [image.manifest, image.config, ...image.layers].map(({ digest, size }) => ({ digest, size })),
      usedAtMs: usedAt(store, image.manifest.digest),
    })),
    blobs: blobsIn(join(store.folder, "blobs", "sha256")),
    foreign: closure(others, store),
    held: heldIds(store.folder, clock),
    nowMs: clock.now().getTime(),
  };
}

/** Milliseconds since 1970: when it was found last, else when it came. */
export const usedAt = (store: LayoutStore, manifestDigest: string): number =>
  Math.max(lastUse(store.folder, manifestDigest) ?? 0, changedAt(store.blobPath(manifestDigest)));

const changedAt = (path: string): number => lstatSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0;

/** Manifests and indexes are smaller than this. */
const MAX_JSON_BYTES = 4 * 2 ** 20;

/** All digests that descriptions lead to, of whatever kind they are: any that stands in their text. */
function closure(digests: readonly string[], store: LayoutStore): Set<string> {
  const found = new Set<string>();
  const todo = [...digests];
  for (let digest = todo.pop(); digest !== undefined; digest = todo.pop()) {
    if (found.has(digest)) continue;
    found.add(digest);
    const path = store.blobPath(digest);
    const stat = lstatSync(path, { throwIfNoEntry: false });
    if (stat === undefined || stat.size > MAX_JSON_BYTES) continue;
    const text = readFileSync(path, "latin1");
    if (text.trimStart().startsWith("{")) todo.push(...text.match(/sha256:[0-9a-f]{64}/g) ?? []);
  }
  return found;
}

function blobsIn(folder: string): GcBlob[] {
  return names(folder).filter((name) => /^[0-9a-f]{64}$/.test(name)).flatMap((name) => {
    const stat = lstatSync(join(folder, name), { throwIfNoEntry: false });
    return stat?.isFile() ? [{ digest: `sha256:${name}`, size: stat.size, changedAtMs: stat.mtimeMs }] : [];
  });
}

/** Downloads and imports that nobody went on with. */
function leftovers(folder: string, clock: Clock): string[] {
  const place = join(folder, PARTIAL);
  return names(place).map((name) => join(place, name)).filter((path) => {
    const stat = lstatSync(path, { throwIfNoEntry: false });
    return stat !== undefined && clock.now().getTime() - stat.mtimeMs > GRACE_MS;
  });
}

function names(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}
