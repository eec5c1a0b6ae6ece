/** `bundle.json` of an export. Pure. */
import { sortByCodePoint } from "../files/order.ts";
import { imageId, localAlias } from "../images/alias.ts";
import type { EntryPlan } from "./_plan.ts";
import { folderName } from "./_plan.ts";
import type { Carried } from "./_write.ts";
import { EXECUTABLE } from "./dataset.ts";
import { sizeOf } from "./images.ts";
import type { ExportRequest } from "./request.ts";
import { type Bundle, type BundleImage, PLACES, SCHEMA_VERSION } from "./schema.ts";

export function bundleOf(request: ExportRequest, plan: EntryPlan, carried: readonly Carried[]): Bundle {
  const { dataset, platform, toolVersion } = request;
  const { dataset_digest, ...digests } = dataset.digests;
  const folder = folderName(dataset.folder);
  const below = (path: string): string => path.slice(`${PLACES.dataset}/${folder}/`.length);
  const skipped = { ...request.skipped, ...plan.unreadable };
  const tasks = request.tasks.filter(({ id }) => plan.unreadable[id] === undefined);
  const idOf = new Map(carried.flatMap(({ refs, image }) => refs.map((ref) => [ref, imageId(image.config.digest)])));
  return {
    schema_version: SCHEMA_VERSION,
    tool_version: toolVersion,
    platform,
    dataset: {
      folder,
      kind: dataset.kind,
      taskset: dataset.taskset,
      source: dataset.source,
      ...(dataset.ref !== undefined && { ref: dataset.ref }),
      digest: dataset_digest,
      ...digests,
      left_out: sortByCodePoint([
        ...dataset.leftOut,
        ...request.tasks.flatMap(({ id, folderDigest }) =>
          plan.unreadable[id] !== undefined && folderDigest !== null ? [folderDigest] : []
        ),
      ]),
      executable: sorted(plan, (entry) => entry.kind === "file" && (entry.mode & EXECUTABLE) !== 0).map(below),
      links: Object.fromEntries(
        plan.entries.flatMap((entry) => (entry.kind === "link" ? [[below(entry.path), entry.target]] : [])),
      ),
      empty_folders: sorted(plan, (entry) => entry.kind === "folder" && entry.empty).map(below),
    },
    baked: request.baked,
    tasks: byKey(tasks.map(({ id, path, folderDigest, digest, images }) => [id, {
      path,
      folder_digest: folderDigest,
      digest,
      images: sortByCodePoint([...new Set(images.map(({ refs }) => idOf.get(refs[0]!)!))]),
    }])),
    images: bundleImages(carried),
    needs_network: plan.needs,
    skipped: byKey(Object.entries(skipped)),
  };
}

const sorted = ({ entries }: EntryPlan, take: (entry: EntryPlan["entries"][number]) => boolean): string[] =>
  sortByCodePoint(entries.filter(take).map(({ path }) => path));

function byKey<V>(entries: readonly (readonly [string, V])[]): Record<string, V> {
  const values = new Map(entries);
  return Object.fromEntries(sortByCodePoint([...values.keys()]).map((key) => [key, values.get(key)!]));
}

/** One for each manifest, also where several names that are started turned out to be one image. */
function bundleImages(carried: readonly Carried[]): BundleImage[] {
  const byManifest = new Map<string, Carried>();
  for (const { image, refs } of carried) {
    const known = byManifest.get(image.manifest.digest);
    byManifest.set(image.manifest.digest, { image, refs: [...new Set([...known?.refs ?? [], ...refs])] });
  }
  return [...byManifest.values()].map(({ image, refs }): BundleImage => ({
    id: imageId(image.config.digest),
    refs: sortByCodePoint([...refs]),
    alias: localAlias(refs[0]!, image.config.digest),
    ...(image.indexDigest !== undefined && { index_digest: image.indexDigest }),
    manifest_digest: image.manifest.digest,
    config_digest: image.config.digest,
    diff_ids: image.layers.map(({ diffId }) => diffId),
    os: image.file.os,
    architecture: image.file.architecture,
    size_bytes: sizeOf(image),
    config: image.file.config ?? {},
  })).sort((a, b) => (a.manifest_digest < b.manifest_digest ? -1 : 1));
}
