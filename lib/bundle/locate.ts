/** Whether a folder is, or lies in, a bundle: commands that take a dataset take both. */
import { dirname, join } from "node:path";
import { isFolder, statKind } from "../files/tree.ts";
import { nameKey } from "../store/index_file.ts";
import { type Bundle, type BundleImage, PLACES, readBundle } from "./schema.ts";

export interface BundlePlace {
  /** Absolute. */
  folder: string;
  index: Bundle;
  /** Absolute folder of the dataset inside. */
  dataset: string;
}

/** The bundle that `folder` is. Throws HarborError "bundle.invalid" for half of one and for one from a newer version. */
export function bundleAt(folder: string): BundlePlace | undefined {
  if (!isBundle(folder)) return undefined;
  const index = readBundle(folder);
  return { folder, index, dataset: join(folder, PLACES.dataset, index.dataset.folder) };
}

/** The bundle whose dataset `folder` is or belongs to. Throws as bundleAt(). */
export function bundleAround(folder: string): BundlePlace | undefined {
  for (let below = folder, at = dirname(folder); at !== below; below = at, at = dirname(at)) {
    if (below !== join(at, PLACES.dataset)) continue;
    const found = bundleAt(at);
    if (found !== undefined) return `${folder}/`.startsWith(`${found.dataset}/`) ? found : undefined;
  }
  return undefined;
}

/** A dataset may have a file of that name among its own; a bundle keeps its tasks one level down. */
const isBundle = (folder: string): boolean =>
  [PLACES.index, PLACES.unfinished].some((name) => statKind(join(folder, name)) === "file") &&
  isFolder(join(folder, PLACES.dataset)) &&
  ["task.toml", "dataset.toml"].every((name) => statKind(join(folder, name)) === undefined);

/** The image of a bundle that a reference means, by any of its spellings. */
export function imagesOf({ images }: Bundle): (reference: string) => BundleImage | undefined {
  const byName = new Map(images.flatMap((image) => image.refs.map((ref) => [nameKey(ref), image])));
  return (reference) => byName.get(nameKey(reference));
}
