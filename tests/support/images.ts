/** Small images made by hand, and a store of the test's own to put them into. */
import { createHash } from "node:crypto";
import { gzipSync } from "node:zlib";
import { type Descriptor, MEDIA, type RemoteImage } from "../../lib/registry/registry.ts";
import { systemClock } from "../../lib/runtime/clock.ts";
import { type LayoutStore, openStore } from "../../lib/store/layout.ts";
import type { StoredImage } from "../../lib/store/store.ts";

export const never = new AbortController().signal;

export const sha256 = (bytes: Uint8Array): string => `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
export const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);
export const jsonBytes = (value: unknown): Uint8Array => bytesOf(JSON.stringify(value));

export interface TestImage extends Pick<RemoteImage, "manifest" | "manifestBytes"> {
  config: Descriptor;
  configBytes: Uint8Array;
  layers: (Descriptor & { bytes: Uint8Array; diffId: string })[];
}

/** An image of these layers (tar archives); `config` goes over a small configuration. */
export function makeImage(
  layers: Uint8Array[],
  given: { config?: Record<string, unknown>; architecture?: string; compress?: (tar: Uint8Array) => Uint8Array } = {},
): TestImage {
  const compress = given.compress ?? gzipSync;
  const made = layers.map((tar) => {
    const bytes = new Uint8Array(compress(tar));
    const mediaType = "application/vnd.oci.image.layer.v1.tar+gzip";
    return { mediaType, digest: sha256(bytes), size: bytes.length, bytes, diffId: sha256(tar) };
  });
  const configBytes = jsonBytes({
    os: "linux",
    architecture: given.architecture ?? "amd64",
    config: { Env: ["PATH=/bin"], ...given.config },
    rootfs: { type: "layers", diff_ids: made.map(({ diffId }) => diffId) },
  });
  const config = { mediaType: MEDIA.ociConfig, digest: sha256(configBytes), size: configBytes.length };
  const manifestBytes = jsonBytes({
    schemaVersion: 2,
    mediaType: MEDIA.ociManifest,
    config,
    layers: made.map(({ mediaType, digest, size }) => ({ mediaType, digest, size })),
  });
  const manifest = { mediaType: MEDIA.ociManifest, digest: sha256(manifestBytes), size: manifestBytes.length };
  return { manifest, manifestBytes, config, configBytes, layers: made };
}

/** A source of one chunk, from the offset that is asked. */
export const sourceOf = (bytes: Uint8Array) => (offset: number): Promise<AsyncIterable<Uint8Array>> =>
  Promise.resolve((async function* () {
    await Promise.resolve();
    yield bytes.subarray(offset);
  })());

export const testStore = (folder: string, readOnly?: boolean): LayoutStore =>
  openStore(folder, { clock: systemClock, readOnly });

/** Takes all blobs of an image and names it. */
export async function putImage(store: LayoutStore, image: TestImage, names: string[]): Promise<StoredImage> {
  const blobs = [...image.layers, { ...image.config, bytes: image.configBytes }];
  for (const { bytes, ...descriptor } of blobs) await store.take(descriptor, sourceOf(bytes), never);
  return await store.add(image, names);
}
