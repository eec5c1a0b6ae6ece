/** What a bundle knows about the images that its tasks start, handed to who starts them. Pure. */
import { HarborError } from "../errors.ts";
import type { Prepared, PreparedStart } from "../images/prepare.ts";
import type { ImageNeed } from "../sandbox/provider.ts";
import { imagesOf } from "./locate.ts";
import type { Bundle } from "./schema.ts";

/**
 * The same images, found also under the tag that an import of the bundle gave them, and by the configuration that they
 * must have: an engine forgets digests of registries, and may have another image under a name.
 */
export function withBundleNames(prepared: Prepared, bundle: Bundle): Prepared {
  const find = imagesOf(bundle);
  const known = (source: ImageNeed["source"]): ImageNeed["source"] => {
    const image = source.kind === "named" ? find(source.reference) : undefined;
    if (source.kind !== "named" || image === undefined) return source;
    return { configDigest: image.config_digest, ...source, aliases: [image.alias, ...source.aliases ?? []] };
  };
  const start = (one: PreparedStart): PreparedStart =>
    one instanceof HarborError ? one : {
      ...one,
      need: () => {
        const need = one.need();
        return { ...need, source: known(need.source) };
      },
    };
  const images = Array.from(
    prepared.images,
    ([id, roles]) => [id, new Map(Array.from(roles, ([role, one]) => [role, start(one)] as const))] as const,
  );
  return { ...prepared, images: new Map(images) };
}
