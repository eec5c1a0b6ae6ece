/**
 * Our image store as a folder: an OCI image layout that several processes, users and machines may share. index.json is
 * merged under a lock and replaced in one step, so that no name is lost and a reader sees the old or the new one. A
 * store that cannot be written (a bundle on read-only media) can be read; one that is not there yet is empty.
 */
import { accessSync, closeSync, constants, existsSync, fsyncSync, mkdirSync, openSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { errno, HarborError, messageOf } from "../errors.ts";
import { writeAtomic } from "../files/atomic.ts";
import { lockFile } from "../files/lock.ts";
import { platformName, platformOf } from "../images/config.ts";
import { type Descriptor, MEDIA, type RemoteImage } from "../registry/registry.ts";
import type { Clock } from "../runtime/clock.ts";
import { Blobs, digestOf } from "./blobs.ts";
import { type Content, readContent } from "./content.ts";
import { absentBlob, damaged, unwritableStore } from "./damage.ts";
import {
  digestIn,
  emptyIndex,
  indexDigestOf,
  type IndexEntry,
  IndexFile,
  isOurs,
  nameKey,
  namesOf,
  withImage,
} from "./index_file.ts";
import { Leases } from "./leases.ts";
import type { BlobSource } from "./partial.ts";
import { noteUse } from "./use.ts";
import type { ImageStore, StoredImage, StoreFault } from "./store.ts";

const LAYOUT = `{"imageLayoutVersion":"1.0.0"}\n`;
const INDEX_WAIT_MS = 120_000;

export interface StoreOptions {
  clock: Clock;
  /** Nothing is written, also where it could be. Default: whether the folder can be written decides. */
  readOnly?: boolean;
}

/** Opens the store in `folder`, which is made by the first that is written. Throws nothing; what is wrong shows in use. */
export function openStore(folder: string, options: StoreOptions): LayoutStore {
  const path = resolve(folder);
  return new LayoutStore(path, options.readOnly ?? !writable(path), options.clock);
}

function writable(folder: string): boolean {
  let at = folder;
  while (!existsSync(at) && at !== dirname(at)) at = dirname(at);
  try {
    accessSync(at, constants.W_OK | constants.X_OK);
    return !isReadOnlyDisk(join(folder, "index.json"));
  } catch {
    return false;
  }
}

/** Deno 2.9 answers access() from mode bits: what a disk that is mounted read-only says, only an open tells. */
function isReadOnlyDisk(path: string): boolean {
  try {
    closeSync(openSync(path, "r+"));
    return false;
  } catch (error) {
    return errno(error) === "EROFS";
  }
}

/** One entry of index.json, resolved as far as that goes. */
interface Known {
  names: string[];
  indexDigest?: string;
  content: Content;
}

export class LayoutStore implements ImageStore {
  readonly #blobs: Blobs;
  readonly #leases: Leases;
  #contents = new Map<string, Content>();
  #used = new Set<string>();

  constructor(readonly folder: string, readonly readOnly: boolean, private readonly clock: Clock) {
    this.#blobs = new Blobs(folder, readOnly, clock);
    this.#leases = new Leases(folder, clock);
  }

  has(digest: string): boolean {
    return this.#blobs.has(digest);
  }

  blobPath(digest: string): string {
    return this.#blobs.path(digest);
  }

  readBlob(digest: string): Uint8Array {
    return this.#blobs.read(digest);
  }

  async take(descriptor: Descriptor, source: BlobSource, signal: AbortSignal): Promise<void> {
    this.#refuseReadOnly(`Cannot take ${descriptor.digest}`);
    await this.#blobs.take(descriptor, source, signal);
  }

  workFolder(): string {
    this.#refuseReadOnly("Cannot take images");
    return this.#blobs.workFolder();
  }

  async adopt(path: string, blob: { digest: string; size: number }): Promise<void> {
    await this.#blobs.adopt(path, blob);
  }

  // deno-lint-ignore require-await -- answers with a promise, also when it throws
  async find(reference: string, platform: string): Promise<StoredImage | undefined> {
    const wanted = platformName(platform);
    const named = digestIn(reference);
    const key = named?.alone ? undefined : nameKey(reference);
    const matches = (known: Known): boolean => {
      if (named === undefined) return known.names.includes(key!);
      const { manifest, config } = known.content;
      return [manifest.digest, known.indexDigest, named.alone ? config.digest : undefined].includes(named.digest) ||
        known.names.some((name) => name.endsWith(`@${named.digest}`));
    };
    // A fault in an entry that is not asked for must not hide the one that is.
    const candidates = this.#entries((entry) => named !== undefined || namesOf(entry).includes(key!));
    const found = candidates.findLast((known) => known.content.platform === wanted && matches(known));
    if (found === undefined || this.#gaps(found.content).length > 0) return undefined;
    this.#noteUse(found.content.manifest.digest);
    return imageOf(found);
  }

  // deno-lint-ignore require-await -- as above
  async list(): Promise<StoredImage[]> {
    return this.#entries(() => true, () => {}).filter(({ content }) => this.#gaps(content).length === 0).map(imageOf);
  }

  // deno-lint-ignore require-await -- as above
  async faults(): Promise<StoreFault[]> {
    const faults: StoreFault[] = [];
    const known = this.#entries(() => true, (entry, error) => {
      faults.push({ names: namesOf(entry), manifestDigest: entry.digest, reason: messageOf(error) });
    });
    for (const { names, content } of known) {
      const missing = this.#gaps(content);
      if (missing.length === 0) continue;
      faults.push({ names, manifestDigest: content.manifest.digest, reason: `missing blobs: ${missing.join(", ")}` });
    }
    return faults;
  }

  async add(
    image: Pick<RemoteImage, "manifest" | "manifestBytes" | "indexDigest">,
    names: string[],
  ): Promise<StoredImage> {
    this.#refuseReadOnly("Cannot add an image");
    const odd = names.find((name) => name === "" || /\s/.test(name));
    if (odd !== undefined) throw new HarborError("image.failed", `'${odd}' is no name for an image`);
    const { manifest, manifestBytes, indexDigest } = image;
    const found = digestOf(manifestBytes);
    if (found !== manifest.digest) {
      throw new HarborError("image.failed", `Cannot add the manifest ${manifest.digest}: its bytes are ${found}`);
    }
    this.#blobs.put(manifestBytes);
    const content = this.#content({ ...manifest, size: manifestBytes.length });
    const [missing] = this.#gaps(content);
    if (missing !== undefined) throw this.#gap(missing);
    const merged = await this.update((index) =>
      withImage(index, { manifest: content.manifest, indexDigest, platform: content.platform, names }, platformIn)
    );
    const entry = merged.manifests.findLast(({ digest }) => digest === manifest.digest)!;
    return imageOf({ names: namesOf(entry), indexDigest: indexDigestOf(entry), content });
  }

  /**
   * Replaces index.json by what `change` makes of it, under the lock, and runs `after` before that is let go. Throws
   * "image.failed".
   */
  async update(change: (index: IndexFile) => IndexFile | Promise<IndexFile>, after = () => {}): Promise<IndexFile> {
    this.#refuseReadOnly("Cannot change index.json");
    try {
      mkdirSync(this.folder, { recursive: true });
      using _lock = await lockFile(join(this.folder, "index.json.lock"), { clock: this.clock, waitMs: INDEX_WAIT_MS });
      if (!existsSync(join(this.folder, "oci-layout"))) await writeAtomic(join(this.folder, "oci-layout"), LAYOUT);
      syncFolder(join(this.folder, "blobs", "sha256"));
      const changed = await change(this.#index());
      await writeAtomic(join(this.folder, "index.json"), JSON.stringify(changed, null, 2) + "\n");
      after();
      return changed;
    } catch (cause) {
      throw unwritableStore("Cannot change index.json", this.folder, cause);
    }
  }

  /** For a clean-up: images of ours, whole or not, and the digests of all other entries: of others, or not readable. */
  // deno-lint-ignore require-await -- as above
  async entries(): Promise<{ images: StoredImage[]; others: string[] }> {
    const images: StoredImage[] = [];
    const others: string[] = [];
    for (const entry of this.#index().manifests) {
      const opened = isOurs(entry) ? this.#open(entry, () => {}) : [];
      if (opened.length === 0) others.push(entry.digest);
      images.push(...opened.map(imageOf));
    }
    return { images, others };
  }

  #index(): IndexFile {
    const path = join(this.folder, "index.json");
    let text: string;
    try {
      text = readFileSync(path, "utf8");
    } catch (cause) {
      if (errno(cause) === "ENOENT") return emptyIndex();
      throw new HarborError("image.failed", `Cannot read ${path}: ${messageOf(cause)}`, { cause });
    }
    try {
      return IndexFile.parse(JSON.parse(text));
    } catch (cause) {
      throw new HarborError("image.failed", `${path} is not the index of an OCI image layout`, {
        cause,
        hint: "remove or mend that file; blobs that are here will not be fetched again",
      });
    }
  }

  /** Entries of index.json that `isWanted`, opened. `onFault` is told what cannot be read; without it that is thrown. */
  #entries(isWanted: (entry: IndexEntry) => boolean, onFault?: OnFault): Known[] {
    return this.#index().manifests.filter(isWanted).flatMap((entry) => this.#open(entry, onFault));
  }

  /** The images behind an entry: its own, or those of an index. Attestations and artifacts are none. */
  #open(entry: IndexEntry, onFault?: OnFault): Known[] {
    const names = namesOf(entry);
    const open = (one: IndexEntry, indexDigest: string | undefined, depth: number): Known[] => {
      try {
        if (one.platform?.os === "unknown") return [];
        if (!isIndex(one.mediaType)) return [{ names, indexDigest, content: this.#content(one) }];
        const inner = IndexFile.parse(JSON.parse(new TextDecoder().decode(this.readBlob(one.digest))));
        // Of a multi-platform index only what was taken along is here.
        const here = inner.manifests.filter(({ digest }) => depth < MAX_DEPTH && this.has(digest));
        return here.flatMap((below) => open(below, one.digest, depth + 1));
      } catch (error) {
        if (onFault === undefined) throw error;
        onFault(one, error);
        return [];
      }
    };
    return open(entry, indexDigestOf(entry), 0);
  }

  #content(descriptor: Descriptor): Content {
    const known = this.#contents.get(descriptor.digest);
    if (known !== undefined) return known;
    const content = readContent(descriptor, (digest) => this.readBlob(digest));
    this.#contents.set(descriptor.digest, content);
    return content;
  }

  /** Whoever finds an image is going to use it: a clean-up keeps it while this process lives, and knows when it was. */
  #noteUse(manifestDigest: string): void {
    if (this.readOnly || this.#used.has(manifestDigest)) return;
    this.#used.add(manifestDigest);
    try {
      this.#leases.hold([manifestDigest]);
      noteUse(this.folder, manifestDigest);
    } catch {
      // a disk that is full, a store of another user: reading it must not fail for that
    }
  }

  /** Blobs of an image that are not here, or not whole. */
  #gaps({ manifest, config, layers }: Content): string[] {
    return [manifest, config, ...layers].filter(({ digest, size }) => this.#blobs.size(digest) !== size)
      .map(({ digest }) => digest);
  }

  /** A file of another length than its image says is in the way of the right one. */
  #gap(digest: string): HarborError {
    const size = this.#blobs.size(digest);
    const path = this.blobPath(digest);
    return size === undefined
      ? absentBlob(digest, path)
      : damaged(digest, `only ${size}`, { path, readOnly: this.readOnly });
  }

  #refuseReadOnly(doing: string): void {
    if (!this.readOnly) return;
    throw new HarborError("image.failed", `${doing}: the image store ${this.folder} is read-only`, {
      hint: "choose one that can be written: --image-store DIR",
    });
  }
}

type OnFault = (entry: IndexEntry, error: unknown) => void;

const MAX_DEPTH = 4;

const isIndex = (mediaType: string): boolean => mediaType === MEDIA.ociIndex || mediaType === MEDIA.dockerList;

const platformIn = ({ platform }: IndexEntry): string | undefined => platform && platformOf(platform);

const imageOf = ({ names, indexDigest, content }: Known): StoredImage => ({
  names,
  ...(indexDigest !== undefined && { indexDigest }),
  ...content,
});

/** The names of the blobs are on disk before the index speaks of them. */
function syncFolder(folder: string): void {
  if (!existsSync(folder)) return;
  const file = openSync(folder, "r");
  try {
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}
