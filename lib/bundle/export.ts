/**
 * A dataset and its images → one folder (schema.ts has its layout). The order: take the folder, see where every image
 * is, say how much will be written and whether it fits, copy, and only when all is there write the index and the sums.
 * Interrupted at any moment, the same export goes on; what is there already is hashed, not trusted.
 */
import { statSync } from "node:fs";
import { join } from "node:path";
import { taskDigest } from "../digest/task.ts";
import { HarborError } from "../errors.ts";
import type { Emit } from "../events.ts";
import { writeAtomic } from "../files/atomic.ts";
import { bytesText } from "../bytes.ts";
import type { Clock } from "../runtime/clock.ts";
import { openStore } from "../store/layout.ts";
import { bundleOf } from "./_index.ts";
import { distinctImages, folderName, planEntries } from "./_plan.ts";
import { refuseFullDisk, sizesOf, sizesText, tellingProgress, toWrite } from "./_sizes.ts";
import { removeStrays, soundBlobs, writeEntries, writeImages } from "./_write.ts";
import { copyFile, hashFile, silent, unwritableBundle } from "./copy.ts";
import { findImages, type ImageSources } from "./images.ts";
import type { ExportRequest } from "./request.ts";
import { type Bundle, bundleText, PLACES } from "./schema.ts";
import { sumsText } from "./sums.ts";
import { openWorkplace } from "./workplace.ts";

export interface ExportDeps {
  clock: Clock;
  emit: Emit;
}

/** Throws "usage", "store.locked", "image.failed", "machine.lacks" (space), "store.unwritable", "task.invalid". */
export async function exportBundle(
  request: ExportRequest,
  sources: ImageSources,
  deps: ExportDeps,
  signal: AbortSignal,
): Promise<Bundle> {
  const { out, binary } = request;
  const note = (text: string) => deps.emit({ kind: "note", text });
  const plan = planEntries(request);
  plan.notes.forEach(note);
  const { taskset, kind } = request.dataset;
  try {
    using place = await openWorkplace(out, { taskset, kind, platform: request.platform }, { ...deps, signal });
    const target = openStore(join(out, PLACES.images), { clock: deps.clock, readOnly: false });
    const here = await soundBlobs(target, signal);
    const wanted = distinctImages(request.tasks);
    const found = await findImages(wanted, { ...sources, stores: [target, ...sources.stores] }, signal);
    const sizes = sizesOf(plan.entries, found, here, binary);
    sizesText(sizes, request.tasks.length).forEach(note);
    const free = await refuseFullDisk(out, sizes);
    note(`writing ${bytesText(toWrite(sizes))} to ${out}, where ${bytesText(free)} are free`);
    const progress = tellingProgress("exporting", toWrite(sizes), deps, signal);

    const sums = await writeEntries(out, plan.entries, progress);
    refuseChanged(request, plan.unreadable);
    const carried = await writeImages(found, target, sources, progress, { sums, emit: deps.emit });
    if (binary !== undefined) {
      sums.set(PLACES.binary, await copyFile(binary, join(out, PLACES.binary), { ...progress, mode: 0o755 }));
    }
    removeStrays(out, [...sums.keys(), ...plan.entries.map(({ path }) => path)]);
    const bundle = bundleOf(request, plan, carried);
    await writeAtomic(join(out, PLACES.index), bundleText(bundle));
    sums.set(PLACES.index, await hashFile(join(out, PLACES.index), silent(signal)));
    await writeAtomic(join(out, PLACES.sums), sumsText(sums));
    place.finish();
    const bytes = [...sums.keys()].reduce((all, path) => all + statSync(join(out, path)).size, 0);
    note(`written: ${sums.size + 1} files, ${bytesText(bytes)}`);
    return bundle;
  } catch (error) {
    throw unwritableBundle(out, error);
  }
}

/** The copies are what was planned: nobody edited the dataset meanwhile. */
function refuseChanged({ out, dataset, tasks }: ExportRequest, unreadable: Readonly<Record<string, string>>): void {
  for (const { id, path, folderDigest } of tasks) {
    if (folderDigest === null || unreadable[id] !== undefined) continue;
    const copy = join(out, PLACES.dataset, folderName(dataset.folder), path);
    if (taskDigest(copy) === folderDigest) continue;
    throw new HarborError("task.invalid", `${dataset.folder}/${path} changed while it was copied`, {
      hint: "run the same export again when the dataset is at rest",
    });
  }
}
