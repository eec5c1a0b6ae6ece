/** From a dataset as it was read and its images as they were prepared to what a bundle is made of. */
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { manifestText, readManifest } from "../dataset/manifest.ts";
import { openDataset } from "../dataset/load.ts";
import type { RunInput } from "../dataset/input.ts";
import { HarborError } from "../errors.ts";
import { statKind } from "../files/tree.ts";
import { BUILT_IMAGES } from "../images/built.ts";
import type { Prepared } from "../images/prepare.ts";
import { readRecordFile, textOf } from "../images/record_file.ts";
import type { Records } from "../images/record_files.ts";
import { COMPOSE_IMAGES } from "../images/records.ts";
import { leftOut } from "../target/resolve.ts";
import type { WantedImage } from "./images.ts";
import type { ExportRequest, ExportTask } from "./request.ts";

export interface ExportFacts extends Pick<ExportRequest, "out" | "toolVersion" | "platform" | "binary" | "baked"> {
  /** As prepare left them. */
  records: Records;
}

export function requestOf(input: RunInput, prepared: Prepared, facts: ExportFacts): ExportRequest {
  const { target, folderDigests } = input;
  const skipped: Record<string, string> = { ...input.unloadable, ...prepared.refused };
  for (const { tasks, error } of prepared.failures) for (const id of tasks) skipped[id] ??= error.message;
  const loaded = new Map(input.tasks.map((one) => [one.task.id, one]));
  const tasks = openDataset(target).found
    .filter(({ id, linked }) => !linked && (loaded.has(id) || Object.hasOwn(input.unloadable, id)))
    .map(({ id, path }): ExportTask => {
      const { task = null, digest = null } = loaded.get(id) ?? {};
      return {
        id,
        path,
        folder: target.kind === "task" ? target.folder : join(target.datasetFolder, path),
        folderDigest: folderDigests.get(id) ?? null,
        digest,
        task,
        overlay: task?.image.mode === "overlay" && !facts.baked,
        images: imagesOf(id, prepared, skipped),
      };
    });
  const taken = new Set(tasks.map(({ id }) => id));
  const others = [...folderDigests].filter(([id]) => !taken.has(id)).map(([, digest]) => digest);
  const { records, ...rest } = facts;
  return {
    ...rest,
    dataset: {
      folder: target.datasetFolder,
      kind: target.kind,
      taskset: target.taskset,
      ...sourceOf(target.datasetFolder),
      digests: input.digests,
      leftOut: [...others, ...leftOut(target)],
      files: { ...recordFiles(records), ...manifestFile(input) },
    },
    tasks,
    skipped,
  };
}

function imagesOf(id: string, { images }: Prepared, skipped: Record<string, string>): WantedImage[] {
  const wanted: WantedImage[] = [];
  for (const start of images.get(id)?.values() ?? []) {
    if (start instanceof HarborError) {
      skipped[id] ??= start.message;
      continue;
    }
    try {
      const { source } = start.need();
      if (source.kind !== "named") continue;
      const { reference, aliases = [], configDigest } = source;
      wanted.push({ refs: [reference, ...aliases], ...(configDigest !== undefined && { configDigest }) });
    } catch (error) {
      if (!(error instanceof HarborError)) throw error;
      skipped[id] ??= error.message;
    }
  }
  return wanted;
}

function sourceOf(folder: string): { source: string; ref?: string } {
  const { source = "local", ref } = readManifest(join(folder, "manifest.toml")).manifest?.dataset ?? {};
  return { source, ...(ref !== undefined && { ref }) };
}

/** As prepare left them, where that is not what stands in a folder that cannot be written. */
function recordFiles(records: Records): Record<string, string> {
  const files: Record<string, string> = {};
  for (const [name, value] of [[COMPOSE_IMAGES, records.images], [BUILT_IMAGES, records.built]] as const) {
    if (!isDeepStrictEqual(readRecordFile(records.pathOf(name)), value)) files[name] = textOf(value);
  }
  return files;
}

/** One of its own for a dataset that git or read-only media kept from having one. */
function manifestFile({ target, folderDigests, digests, complete }: RunInput): Record<string, string> {
  if (target.kind === "task" || statKind(join(target.datasetFolder, "manifest.toml")) !== undefined) return {};
  return { "manifest.toml": manifestText({ tasks: folderDigests, digests, complete }) };
}
