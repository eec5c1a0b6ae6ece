/** What an export does to its folder: entries, images, and the removal of what does not belong. */
import { existsSync, lstatSync, readdirSync, rmSync } from "node:fs";
import { createHash } from "node:crypto";
import { dirname, join } from "node:path";
import { HarborError } from "../errors.ts";
import type { Emit } from "../events.ts";
import { writeAtomic } from "../files/atomic.ts";
import type { LayoutStore } from "../store/layout.ts";
import type { StoredImage } from "../store/store.ts";
import { copyFile, copyLink, hashFile, makeFolder, type Progress, silent } from "./copy.ts";
import type { PlannedEntry } from "./dataset.ts";
import { carryImage, type FoundImage, type ImageSources, manifestOf } from "./images.ts";
import { PLACES } from "./schema.ts";

/** Sums of files by path below the bundle's folder. */
export type Sums = Map<string, string>;

/** Writes the entries; returns the sums of the files among them. */
export async function writeEntries(out: string, entries: readonly PlannedEntry[], progress: Progress): Promise<Sums> {
  const sums: Sums = new Map();
  makeFolder(join(out, PLACES.dataset), 0o755);
  for (const entry of entries) {
    const to = join(out, entry.path);
    if (entry.kind === "folder") makeFolder(to, entry.mode);
    else if (entry.kind === "link") copyLink(entry.target, to);
    else if (entry.kind === "file") {
      sums.set(entry.path, await copyFile(entry.from, to, { ...progress, mode: entry.mode }));
    } else {
      await writeAtomic(to, entry.text);
      sums.set(entry.path, createHash("sha256").update(entry.text).digest("hex"));
    }
    progress.signal.throwIfAborted();
  }
  return sums;
}

/** Blobs that an earlier try left, each hashed; one that is not its name goes. Makes their folder. */
export async function soundBlobs(target: LayoutStore, signal: AbortSignal): Promise<Set<string>> {
  const sound = new Set<string>();
  const folder = dirname(target.blobPath(`sha256:${"0".repeat(64)}`));
  makeFolder(folder, 0o755);
  for (const name of readdirSync(folder)) {
    const path = join(folder, name);
    const isSound = lstatSync(path).isFile() && await hashFile(path, silent(signal)) === name;
    if (isSound) sound.add(`sha256:${name}`);
    else rmSync(path, { recursive: true, force: true });
  }
  return sound;
}

export interface Carried {
  refs: string[];
  image: StoredImage;
}

/** Brings the images in and writes the layout's index anew, so that it holds these images and names alone. */
export async function writeImages(
  found: readonly FoundImage[],
  target: LayoutStore,
  sources: ImageSources,
  progress: Progress,
  { sums, emit }: { sums: Sums; emit: Emit },
): Promise<Carried[]> {
  const carried: Carried[] = [];
  const known = new Map<string, StoredImage>();
  for (const one of found) {
    const digest = manifestOf(one);
    if (one.found.from === "engine") {
      emit({ kind: "note", text: `saving ${one.wanted.refs[0]} from ${one.found.engine.name}` });
    }
    const image = known.get(digest ?? "") ?? await carryImage(one, target, sources, progress, emit);
    known.set(image.manifest.digest, image);
    if (image.platform !== sources.platform) throw otherPlatform(one.wanted.refs[0]!, image.platform, sources.platform);
    carried.push({ refs: one.wanted.refs, image });
    progress.signal.throwIfAborted();
  }
  await target.update((index) => ({ ...index, manifests: [] }));
  for (const { image, refs } of carried) {
    const manifestBytes = target.readBlob(image.manifest.digest);
    await target.add({ manifest: image.manifest, manifestBytes, indexDigest: image.indexDigest }, refs);
    for (const { digest } of [image.manifest, image.config, ...image.layers]) {
      const hex = digest.slice("sha256:".length);
      sums.set(`${PLACES.images}/blobs/sha256/${hex}`, hex);
    }
  }
  for (const name of ["index.json", "oci-layout"]) {
    sums.set(`${PLACES.images}/${name}`, await hashFile(join(target.folder, name), silent(progress.signal)));
  }
  return carried;
}

const otherPlatform = (reference: string, found: string, wanted: string): HarborError =>
  new HarborError("image.failed", `${reference} resolved to ${found}, not ${wanted}`, {
    hint: `export with --platform ${found}, or fetch the image for ${wanted}`,
  });

/** Removes everything below the folder that is not of the bundle: parts of earlier tries, tasks no longer taken. */
export function removeStrays(out: string, paths: Iterable<string>): void {
  const wanted = new Set<string>();
  for (const path of paths) {
    for (let at = path; at !== "."; at = dirname(at)) wanted.add(at);
  }
  for (const top of [PLACES.dataset, PLACES.images.split("/")[0]!, PLACES.binary]) {
    if (existsSync(join(out, top))) removeBelow(out, top, wanted);
  }
}

function removeBelow(out: string, path: string, wanted: ReadonlySet<string>): void {
  const at = join(out, path);
  if (!wanted.has(path)) return rmSync(at, { recursive: true, force: true });
  if (!lstatSync(at).isDirectory()) return;
  for (const name of readdirSync(at)) removeBelow(out, `${path}/${name}`, wanted);
}
