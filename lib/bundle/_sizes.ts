/** How much an export writes, said and held against the free space before it writes, and how far it is. */
import { statSync } from "node:fs";
import { statfs } from "node:fs/promises";
import { HarborError } from "../errors.ts";
import { bytesText } from "../bytes.ts";
import type { Clock } from "../runtime/clock.ts";
import type { Emit } from "../events.ts";
import type { Progress } from "./copy.ts";
import type { PlannedEntry } from "./dataset.ts";
import { blobsOf, type FoundImage, manifestOf } from "./images.ts";

export interface Sizes {
  files: number;
  /** Bytes of the dataset's files. */
  dataset: number;
  images: number;
  blobs: number;
  /** Bytes of the blobs, shared ones once. */
  blobBytes: number;
  /** Images of an engine, whose size is known only once they are saved. */
  unknown: number;
  binary: number;
  /** Bytes of blobs that an earlier try left here. */
  kept: number;
}

/** `here`: digests of the blobs that are there already. */
export function sizesOf(
  entries: readonly PlannedEntry[],
  found: readonly FoundImage[],
  here: ReadonlySet<string>,
  binary: string | undefined,
): Sizes {
  const files = entries.filter((entry) => entry.kind === "file");
  const blobs = new Map(found.flatMap(blobsOf).map(({ digest, size }) => [digest, size]));
  const sum = (sizes: Iterable<number>): number => [...sizes].reduce((all, one) => all + one, 0);
  return {
    files: files.length,
    dataset: sum(files.map(({ bytes }) => bytes)),
    images: new Set(found.map((one) => manifestOf(one) ?? one)).size,
    blobs: blobs.size,
    blobBytes: sum(blobs.values()),
    unknown: found.filter(({ found: { from } }) => from === "engine").length,
    binary: binary === undefined ? 0 : statSync(binary).size,
    kept: sum([...blobs].filter(([digest]) => here.has(digest)).map(([, size]) => size)),
  };
}

/** Bytes that are still to be written, as far as that is known. */
export const toWrite = ({ dataset, blobBytes, binary, kept }: Sizes): number => dataset + blobBytes + binary - kept;

/** What will be written, as a person reads it. */
export function sizesText(sizes: Sizes, tasks: number): string[] {
  const { files, dataset, images, blobs, blobBytes, unknown, binary, kept } = sizes;
  const count = (n: number, word: string) => `${n} ${word}${n === 1 ? "" : "s"}`;
  return [
    `dataset: ${count(tasks, "task")}, ${count(files, "file")}, ${bytesText(dataset)}`,
    `images: ${images}, ${count(blobs, "blob")}, ${bytesText(blobBytes)}` +
    (unknown === 0 ? "" : `; and ${unknown} of them from an engine, whose size shows when they are saved`),
    ...(binary === 0 ? [] : [`gym-harbor: ${bytesText(binary)}`]),
    ...(kept === 0 ? [] : [`already there from an earlier try: ${bytesText(kept)}`]),
  ];
}

/** Throws "machine.lacks" when the disk of `folder` has less than what is to be written. */
export async function refuseFullDisk(folder: string, sizes: Sizes): Promise<number> {
  const { bavail, bsize } = await statfs(folder);
  const free = bavail * bsize;
  // Small files fill whole blocks.
  const needed = toWrite(sizes) + sizes.files * bsize;
  if (needed <= free) return free;
  throw new HarborError(
    "machine.lacks",
    `Cannot write ${bytesText(needed)} to ${folder}: its disk has ${bytesText(free)} free`,
    { hint: "free some space, or name a folder on another disk with --out", details: { folder, needed, free } },
  );
}

const SOONEST_MS = 1_000;
const LATEST_MS = 10_000;

/** Progress of so many bytes: a line for each tenth, but not many in a second, and at least one every ten. */
export function tellingProgress(
  doing: string,
  total: number,
  { clock, emit }: { clock: Clock; emit: Emit },
  signal: AbortSignal,
): Progress {
  let done = 0;
  let told = 0;
  let toldAt = clock.ticks();
  return {
    signal,
    passed(bytes) {
      done += bytes;
      const since = clock.ticks() - toldAt;
      const tenth = Math.min(10, Math.floor(done / total * 10));
      if (total === 0 || since < SOONEST_MS || (tenth <= told && since < LATEST_MS)) return;
      told = tenth;
      toldAt = clock.ticks();
      const percent = Math.min(100, Math.floor(done / total * 100));
      emit({
        kind: "note",
        text: `${doing}: ${bytesText(done)} of ${bytesText(Math.max(total, done))} (${percent} %)`,
      });
    },
  };
}
