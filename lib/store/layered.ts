/**
 * Several stores as one: what a bundle or a shared folder holds, over a store of our own. Reading looks from the first
 * to the last; writing goes to our own, the last, which need not hold what the others do.
 */
import type { Descriptor, RemoteImage } from "../registry/registry.ts";
import type { ImageStore, StoredImage, StoreFault } from "./store.ts";

export class LayeredStore implements ImageStore {
  readonly #all: ImageStore[];

  constructor(over: readonly ImageStore[], readonly own: ImageStore) {
    this.#all = [...over, own];
  }

  get folder(): string {
    return this.own.folder;
  }

  get readOnly(): boolean {
    return this.own.readOnly;
  }

  async find(reference: string, platform: string): Promise<StoredImage | undefined> {
    for (const store of this.#all) {
      const found = await store.find(reference, platform);
      if (found !== undefined) return found;
    }
    return undefined;
  }

  async list(): Promise<StoredImage[]> {
    return (await Promise.all(this.#all.map((store) => store.list()))).flat();
  }

  async faults(): Promise<StoreFault[]> {
    return (await Promise.all(this.#all.map((store) => store.faults()))).flat();
  }

  /** Whether our own has it: what is taken in must be whole there, also where another store has a part of it. */
  has(digest: string): boolean {
    return this.own.has(digest);
  }

  /** Where it is; in our own where it is nowhere. */
  blobPath(digest: string): string {
    return this.#holder(digest).blobPath(digest);
  }

  readBlob(digest: string): Uint8Array {
    return this.#holder(digest).readBlob(digest);
  }

  #holder(digest: string): ImageStore {
    return this.#all.find((store) => store.has(digest)) ?? this.own;
  }

  take(
    descriptor: Descriptor,
    source: (offset: number) => Promise<AsyncIterable<Uint8Array>>,
    signal: AbortSignal,
  ): Promise<void> {
    return this.own.take(descriptor, source, signal);
  }

  workFolder(): string {
    return this.own.workFolder();
  }

  adopt(path: string, blob: { digest: string; size: number }): Promise<void> {
    return this.own.adopt(path, blob);
  }

  add(
    image: Pick<RemoteImage, "manifest" | "manifestBytes" | "indexDigest">,
    names: string[],
  ): Promise<StoredImage> {
    return this.own.add(image, names);
  }
}
