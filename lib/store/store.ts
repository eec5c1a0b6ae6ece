/**
 * Images on this machine without an engine: an OCI image layout (`oci-layout`, `index.json`, `blobs/sha256/`), shared
 * between processes, users and machines, and possibly read-only. A bundle's `images/oci` is such a store.
 */
import type { Descriptor, RemoteImage } from "../registry/registry.ts";
import type { ImageFile } from "../images/config.ts";

/** One platform's image, whole: all of its blobs are here. */
export interface StoredImage {
  /** Canonical names (reference.ts) and `hb__…` names by which it is found. */
  names: string[];
  /** Digest of the multi-platform index by which a registry named it, where there was one. */
  indexDigest?: string;
  manifest: Descriptor;
  config: Descriptor;
  /** Lowest first; `diffId` is the digest of the layer's uncompressed tar. */
  layers: (Descriptor & { diffId: string })[];
  file: ImageFile;
  /** `os/arch`. */
  platform: string;
}

/** An entry of a store that cannot be used. */
export interface StoreFault {
  names: string[];
  manifestDigest: string;
  reason: string;
}

export interface ImageStore {
  /** Absolute folder. */
  readonly folder: string;
  readonly readOnly: boolean;
  /** By any spelling of a reference, by pin or by digest of manifest, index or configuration; undefined when absent. */
  find(reference: string, platform: string): Promise<StoredImage | undefined>;
  list(): Promise<StoredImage[]>;
  has(digest: string): boolean;
  /** Absolute path of a blob, whether it is there or not. */
  blobPath(digest: string): string;
  /** A manifest, an index or a configuration, checked against its digest. Throws "image.failed" when absent or damaged. */
  readBlob(digest: string): Uint8Array;
  /** Entries that are not whole or cannot be read, which find() and list() leave out. */
  faults(): Promise<StoreFault[]>;
  /**
   * Takes a blob in: written beside its place, checked against digest and size, moved there in one step. A partial
   * download of another process or time is gone on with (`source` is asked from that offset). Throws "image.failed".
   */
  take(
    descriptor: Descriptor,
    source: (offset: number) => Promise<AsyncIterable<Uint8Array>>,
    signal: AbortSignal,
  ): Promise<void>;
  /** A new private folder of ours on the store's disk, for what is to be adopted; its maker removes it. */
  workFolder(): string;
  /**
   * Moves a file in as a blob, whose digest the caller has taken while he wrote it below a workFolder(). Throws
   * "image.failed".
   */
  adopt(path: string, blob: { digest: string; size: number }): Promise<void>;
  /** Names an image whose blobs are all here; the last name wins. */
  add(image: Pick<RemoteImage, "manifest" | "manifestBytes" | "indexDigest">, names: string[]): Promise<StoredImage>;
}
