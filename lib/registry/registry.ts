/** What a registry is to everything that asks one; client.ts is the real one, over fetch. */
import type { Reference } from "../images/reference.ts";

export const MEDIA = {
  ociIndex: "application/vnd.oci.image.index.v1+json",
  dockerList: "application/vnd.docker.distribution.manifest.list.v2+json",
  ociManifest: "application/vnd.oci.image.manifest.v1+json",
  dockerManifest: "application/vnd.docker.distribution.manifest.v2+json",
  ociConfig: "application/vnd.oci.image.config.v1+json",
  dockerConfig: "application/vnd.docker.container.image.v1+json",
} as const;

export interface Descriptor {
  mediaType: string;
  /** `sha256:…`. */
  digest: string;
  /** Bytes. */
  size: number;
}

/** One platform's image as a registry (or a layout) holds it; every digest has been checked against its bytes. */
export interface RemoteImage {
  reference: Reference;
  /** By the digest that the written reference named: of the index behind a multi-platform tag, else of the manifest. */
  pinned: string;
  indexDigest?: string;
  manifest: Descriptor;
  manifestBytes: Uint8Array;
  config: Descriptor;
  configBytes: Uint8Array;
  /** Compressed layers as published, lowest first. */
  layers: Descriptor[];
  /** `os/arch` of the configuration. */
  platform: string;
}

export interface Registry {
  /** Manifest and configuration for a platform (`os/arch`). Throws HarborError "image.failed" with the text of spec §2.5. */
  image(reference: Reference, platform: string, signal: AbortSignal): Promise<RemoteImage>;
  /** Bytes of a blob from `offset` on; the caller checks the digest. Throws "image.failed". */
  blob(
    reference: Reference,
    descriptor: Descriptor,
    from: { offset: number },
    signal: AbortSignal,
  ): Promise<AsyncIterable<Uint8Array>>;
}

/** An image that is all here, to be sent to a registry. */
export interface UploadImage {
  manifest: Descriptor;
  manifestBytes: Uint8Array;
  /** Configuration and layers. */
  blobs: Descriptor[];
  /** The bytes of one of them; read more than once where a registry refuses the first way. */
  open(blob: Descriptor): Promise<Blob>;
}

/** Where images can be sent. */
export interface RegistryWriter {
  /** Sends what the registry lacks, the manifest last; the pinned reference. Throws "image.failed". */
  push(
    reference: Reference,
    image: UploadImage,
    signal: AbortSignal,
    /** Told of each blob that is there, whoever brought it. */
    onBlob?: (blob: Descriptor) => void,
  ): Promise<string>;
}
