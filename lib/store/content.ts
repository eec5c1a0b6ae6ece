/** What lies behind a manifest's digest: configuration and layers, read once and never changing. */
import { z } from "zod";
import { HarborError } from "../errors.ts";
import { ImageFile, platformOf } from "../images/config.ts";
import type { Descriptor } from "../registry/registry.ts";
import type { StoredImage } from "./store.ts";

const Manifest = z.looseObject({
  mediaType: z.string().optional(),
  config: z.looseObject({ mediaType: z.string(), digest: z.string(), size: z.number() }),
  layers: z.array(z.looseObject({ mediaType: z.string(), digest: z.string(), size: z.number() })),
});

/** What lies behind an entry of the index, immutable: named by its digest. */
export type Content = Pick<StoredImage, "manifest" | "config" | "layers" | "file" | "platform">;

/** Throws "image.failed" for what is no image, or contradicts itself. */
export function readContent({ mediaType, digest, size }: Descriptor, read: (digest: string) => Uint8Array): Content {
  const manifest = parseBlob(Manifest, digest, read(digest), "an image manifest");
  const file = parseBlob(ImageFile, manifest.config.digest, read(manifest.config.digest), "a configuration");
  const { diff_ids } = file.rootfs;
  if (diff_ids.length !== manifest.layers.length) {
    const counts = `${manifest.layers.length} layers, its configuration ${diff_ids.length}`;
    throw new HarborError("image.failed", `The manifest ${digest} has ${counts}`);
  }
  return {
    manifest: { mediaType, digest, size },
    config: plain(manifest.config),
    layers: manifest.layers.map((layer, index) => ({ ...plain(layer), diffId: diff_ids[index]! })),
    file,
    platform: platformOf(file),
  };
}

const plain = ({ mediaType, digest, size }: Descriptor): Descriptor => ({ mediaType, digest, size });

function parseBlob<S extends z.ZodType>(schema: S, digest: string, bytes: Uint8Array, what: string): z.infer<S> {
  try {
    return schema.parse(JSON.parse(new TextDecoder().decode(bytes)));
  } catch (cause) {
    throw new HarborError("image.failed", `The blob ${digest} is not ${what}`, { cause, details: { digest } });
  }
}
