/** From a request to the entries of a bundle's dataset and the images it needs. Reads, writes nothing. */
import { basename } from "node:path";
import { HarborError } from "../errors.ts";
import { planDatasetFiles, type PlannedEntry, planTask } from "./dataset.ts";
import type { WantedImage } from "./images.ts";
import { networkNeeds } from "./network_needs.ts";
import type { ExportRequest, ExportTask } from "./request.ts";
import { type NeedsNetwork, PLACES } from "./schema.ts";

export interface EntryPlan {
  entries: PlannedEntry[];
  /** Task id → why its folder cannot be carried at all. */
  unreadable: Record<string, string>;
  needs: NeedsNetwork[];
  /** What a person should know. */
  notes: string[];
}

/** Name of the dataset's folder inside a bundle. */
export const folderName = (folder: string): string => basename(folder) || "root";

export function planEntries({ dataset, tasks }: ExportRequest): EntryPlan {
  const root = `${PLACES.dataset}/${folderName(dataset.folder)}`;
  const written = Object.entries(dataset.files).map(([name, text]): PlannedEntry => ({
    path: `${root}/${name}`,
    kind: "text",
    text,
  }));
  const replaced = new Set(written.map(({ path }) => path));
  const plan: EntryPlan = {
    entries: [
      { path: root, kind: "folder", empty: false, mode: 0o755 },
      ...planDatasetFiles(dataset.folder, root).filter(({ path }) => !replaced.has(path)),
      ...written,
    ],
    unreadable: {},
    needs: [],
    notes: [],
  };
  for (const { id, folder, path, task, overlay } of tasks) {
    const to = `${root}/${path}`;
    try {
      const { entries, leftOut } = planTask(folder, to);
      for (const one of leftOut) plan.notes.push(`${id}: ${one} is a socket, a pipe or a device and is left out`);
      plan.entries.push(...entries);
      if (task !== null) plan.needs.push(...networkNeeds(task, entries, to, overlay));
    } catch (error) {
      if (!(error instanceof HarborError)) throw error;
      plan.unreadable[id] = error.message;
    }
  }
  return plan;
}

/** One for each image that is started, with all of its spellings. */
export function distinctImages(tasks: readonly ExportTask[]): WantedImage[] {
  const byName = new Map<string, WantedImage>();
  for (const { refs, configDigest } of tasks.flatMap(({ images }) => images)) {
    const known = byName.get(refs[0]!);
    byName.set(refs[0]!, {
      refs: [...new Set([...known?.refs ?? [], ...refs])],
      ...((known?.configDigest ?? configDigest) !== undefined && { configDigest: known?.configDigest ?? configDigest }),
    });
  }
  return [...byName.values()];
}
