/**
 * Makes room among unpacked layers: trees are made again from their blobs, so they go before images do. What a living
 * process has mounted, or is making, stays.
 */
import { lstatSync, readdirSync, renameSync, statSync } from "node:fs";
import { join } from "node:path";
import { messageOf } from "../errors.ts";
import { lockFile, readHolder } from "../files/lock.ts";
import type { Clock } from "../runtime/clock.ts";
import { isAlive } from "../runtime/process_identity.ts";
import { removeWhole } from "../sandbox/scratch.ts";
import { heldIds } from "../store/leases.ts";
import { MARKER, NEW_PREFIX, readMarker, USE_LOCK } from "./marker.ts";

const RECENT_MS = 3_600_000;
const UNWANTED_MS = 24 * 3_600_000;
/** A tree on its way out, under a name that nobody asks for. */
const TRASH_PREFIX = ".gone-";

export interface TreeGcOptions {
  /** Trees unused for longer go. */
  olderThanMs?: number;
  /** The longest unused ones go until all take no more than this. */
  maxBytes?: number;
  /** Layers that images of the store have; trees of others go after a day: they may be of another store. */
  wanted?: ReadonlySet<string>;
  dryRun: boolean;
}

export interface UnpackedTree {
  /** Absolute. */
  path: string;
  diffId: string;
  bytes: number;
  usedAtMs: number;
  held: boolean;
}

export interface TreeGcReport {
  removed: UnpackedTree[];
  freedBytes: number;
  keptBytes: number;
  failed: { path: string; reason: string }[];
}

/** All trees below an unpack folder, of every owner map. */
function treesIn(unpackDir: string, clock: Clock): UnpackedTree[] {
  return mapFolders(unpackDir).flatMap((folder) => {
    const held = heldIds(folder, clock);
    return names(folder).flatMap((name) => {
      const path = join(folder, name);
      const marker = name.startsWith(".") ? undefined : readMarker(path);
      if (marker === undefined) return [];
      const usedAtMs = statSync(join(path, MARKER)).mtimeMs;
      return [{ path, diffId: marker.diff_id, bytes: marker.bytes, usedAtMs, held: held.has(name) }];
    });
  });
}

/** Pure: which trees go. */
export function planTreeGc(
  trees: readonly UnpackedTree[],
  { olderThanMs, maxBytes, wanted }: Omit<TreeGcOptions, "dryRun">,
  nowMs: number,
): UnpackedTree[] {
  const free = trees.filter(({ held, usedAtMs }) => !held && nowMs - usedAtMs > RECENT_MS)
    .sort((a, b) => a.usedAtMs - b.usedAtMs);
  const gone = new Set(
    free.filter(({ usedAtMs, diffId }) =>
      (olderThanMs !== undefined && nowMs - usedAtMs > olderThanMs) ||
      (wanted !== undefined && !wanted.has(diffId) && nowMs - usedAtMs > UNWANTED_MS)
    ),
  );
  let kept = sum(trees) - sum([...gone]);
  for (const tree of free) {
    if (maxBytes === undefined || kept <= maxBytes) break;
    if (gone.has(tree)) continue;
    gone.add(tree);
    kept -= tree.bytes;
  }
  return [...gone];
}

/** Removes what goes, and what killed processes left half made. */
export async function collectTrees(unpackDir: string, options: TreeGcOptions, clock: Clock): Promise<TreeGcReport> {
  const failed: TreeGcReport["failed"] = [];
  const now = () => clock.now().getTime();
  const all = treesIn(unpackDir, clock);
  const planned = planTreeGc(all, options, now());
  const removed: UnpackedTree[] = [];
  for (const folder of mapFolders(unpackDir)) {
    const candidates = planned.filter(({ path }) => path.startsWith(`${folder}/`));
    if (options.dryRun) {
      removed.push(...candidates);
      continue;
    }
    removed.push(...await takeAway(folder, candidates, clock, failed));
    for (const path of leftovers(folder)) remove(path, failed);
  }
  const freedBytes = sum(removed);
  return { removed, freedBytes, keptBytes: sum(all) - freedBytes, failed };
}

/** Under the lock that every user takes first, so that nobody begins to use what is on its way out. */
async function takeAway(folder: string, candidates: UnpackedTree[], clock: Clock, failed: TreeGcReport["failed"]) {
  if (candidates.length === 0) return [];
  const moved: [tree: UnpackedTree, trash: string][] = [];
  try {
    using _lock = await lockFile(join(folder, USE_LOCK), { clock, waitMs: 60_000 });
    const held = heldIds(folder, clock);
    for (const tree of candidates) {
      if (held.has(tree.path.slice(folder.length + 1))) continue;
      const trash = join(folder, `${TRASH_PREFIX}${crypto.randomUUID()}`);
      renameSync(tree.path, trash);
      moved.push([tree, trash]);
    }
  } catch (error) {
    failed.push({ path: folder, reason: messageOf(error) });
  }
  return moved.filter(([, trash]) => remove(trash, failed)).map(([tree]) => tree);
}

/** Half-made trees whose maker is gone, and trash that was not finished. */
function leftovers(folder: string): string[] {
  return names(folder).filter((name) => {
    if (name.startsWith(TRASH_PREFIX)) return true;
    if (!name.startsWith(NEW_PREFIX)) return false;
    const lock = name.slice(NEW_PREFIX.length).split("-")[0]!;
    const holder = readHolder(join(folder, `${lock}.lock`))?.holder;
    return holder === undefined || isAlive(holder) === false;
  }).map((name) => join(folder, name));
}

function remove(path: string, failed: TreeGcReport["failed"]): boolean {
  try {
    removeWhole(path);
    return true;
  } catch (error) {
    failed.push({ path, reason: messageOf(error) });
    return false;
  }
}

const sum = (trees: readonly UnpackedTree[]): number => trees.reduce((all, { bytes }) => all + bytes, 0);

const mapFolders = (unpackDir: string): string[] =>
  names(unpackDir).filter((name) => /^(?:single|range|shift)-\d+$/.test(name)).map((name) => join(unpackDir, name))
    .filter((folder) => lstatSync(folder).isDirectory());

function names(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}
