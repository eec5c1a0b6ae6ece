/**
 * The local name of an image that was carried onto this machine. An engine that loads an archive forgets the digests
 * that a registry gave it, so a reference by digest is unknown there; this name says the same by the digest of the
 * image's configuration, which every engine keeps (spec/images-and-sandboxes §8.3, §8.4). Pure.
 */
import { parseReference } from "./reference.ts";

/** Hex digits of a configuration digest that tell images apart: the `id` of a bundle's image. */
const ID_DIGITS = 16;

/** First 16 hex digits of a configuration digest (`sha256:…`). */
export const imageId = (configDigest: string): string => configDigest.replace(/^sha256:/, "").slice(0, ID_DIGITS);

/** `localhost/gym-harbor/<last part of the repository>:<first 16 hex of the configuration digest>`. */
export function localAlias(reference: string, configDigest: string): string {
  const slug = parseReference(reference).repository.split("/").at(-1)!;
  return `localhost/gym-harbor/${slug}:${imageId(configDigest)}`;
}
