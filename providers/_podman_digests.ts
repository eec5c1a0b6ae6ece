/**
 * Which of the digests that podman knows an image by came from a registry. podman (4.3) also makes a manifest of its own
 * for what it builds or loads, and gives every digest to every name: taken for a pin, such a digest names nothing on any
 * other machine. In a manifest of its own the layers go by the digests of their uncompressed content.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";

const Manifest = z.union([
  z.looseObject({ layers: z.array(z.looseObject({ digest: z.string() })) }),
  z.looseObject({ manifests: z.array(z.unknown()) }),
]);

/**
 * `repoDigests` without those of podman's own making. `folder`: the image's own folder in its storage
 * (`<graph root>/<driver>-images/<id>`), where every manifest lies under its digest; what cannot be read there is left out.
 */
export function fromRegistries(
  repoDigests: readonly string[],
  diffIds: readonly string[],
  folder: string,
): string[] {
  const given = new Map<string, boolean>();
  return repoDigests.filter((reference) => {
    const digest = reference.slice(reference.indexOf("@") + 1);
    if (!given.has(digest)) given.set(digest, isGiven(join(folder, fileName(`manifest-${digest}`)), diffIds));
    return given.get(digest);
  });
}

/** As containers/storage names what it keeps beside an image when a key has other characters than a file name should. */
const fileName = (key: string): string => `=${btoa(key)}`;

function isGiven(path: string, diffIds: readonly string[]): boolean {
  try {
    const { success, data } = Manifest.safeParse(JSON.parse(readFileSync(path, "utf8")));
    if (!success) return false;
    return "manifests" in data || data.layers.some(({ digest }) => !diffIds.includes(digest));
  } catch {
    return false; // another machine's podman, or not ours to read
  }
}
