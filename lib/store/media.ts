/** Media types of images that come without any: from archives of engines and from folders. */
import { type ImageFile } from "../images/config.ts";
import { MEDIA } from "../registry/registry.ts";

const LAYERS = {
  oci: {
    plain: "application/vnd.oci.image.layer.v1.tar",
    gzip: "application/vnd.oci.image.layer.v1.tar+gzip",
    zstd: "application/vnd.oci.image.layer.v1.tar+zstd",
  },
  docker: {
    plain: "application/vnd.docker.image.rootfs.diff.tar",
    gzip: "application/vnd.docker.image.rootfs.diff.tar.gzip",
    zstd: "application/vnd.docker.image.rootfs.diff.tar.zstd",
  },
} as const;

export type Compression = keyof typeof LAYERS.oci;

/** How a blob is compressed, by its first four bytes. */
export function compressionOf(first: Uint8Array): Compression {
  if (first[0] === 0x1f && first[1] === 0x8b) return "gzip";
  const [a, b, c, d] = first;
  const isZstd = a === 0x28 && b === 0xb5 && c === 0x2f && d === 0xfd;
  return isZstd || (((a ?? 0) & 0xf0) === 0x50 && b === 0x2a && c === 0x4d && d === 0x18) ? "zstd" : "plain";
}

/**
 * Types for a manifest around a configuration that is kept byte for byte. Docker's where the configuration has what OCI
 * does not know (HEALTHCHECK, SHELL, ONBUILD): engines drop it under an OCI type (podman 4.3).
 */
export function mediaTypesFor({ config }: ImageFile) {
  const isDockers = ["Healthcheck", "Shell", "OnBuild"].some((key) =>
    (config as Record<string, unknown> | null)?.[key]
  );
  return isDockers
    ? { manifest: MEDIA.dockerManifest, config: MEDIA.dockerConfig, layer: LAYERS.docker }
    : { manifest: MEDIA.ociManifest, config: MEDIA.ociConfig, layer: LAYERS.oci };
}
