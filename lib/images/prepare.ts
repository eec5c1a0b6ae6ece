/**
 * Prepare, as the one list of steps that `validate`, `run` and `dataset prepare` share (images §1.3, steps 6 to 10):
 * plan, reuse what is recorded, build the rest, read configurations, record. Afterwards everything that a run needs to
 * know about its images is on disk, and the next prepare asks nobody.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Emit } from "../events.ts";
import { HarborError } from "../errors.ts";
import type { Clock } from "../runtime/clock.ts";
import type { ImageNeed, PreparedImage } from "../sandbox/provider.ts";
import type { Task } from "../task/task.ts";
import { type Configurations, type ConfigurationSources, readConfigurations, type Wanted } from "./configurations.ts";
import { withDockerfile } from "./dockerfile.ts";
import { imageNeedOf, mainImage, startNeeds, type TaskImage } from "./plan.ts";
import { readRecordFile, updateRecordFile } from "./record_file.ts";
import { COMPOSE_IMAGES, type ImageRecord, withRecords } from "./records.ts";

export interface PrepareDeps extends Omit<ConfigurationSources, "records"> {
  clock: Clock;
  emit: Emit;
}

/** How a task's image is had and started. */
export interface Start {
  need: ImageNeed;
  /** What a provider answers to `need`, as the task's Dockerfile leaves it. */
  finish(image: PreparedImage): PreparedImage;
}

export interface Prepared {
  /** By task id; "image.failed" for a task whose image cannot be had. */
  starts: Map<string, Start | HarborError>;
}

/** Throws "store.…" for records that cannot be read or written, the abort, and faults of our own. */
export async function prepareTasks(
  tasks: readonly Task[],
  deps: PrepareDeps,
  signal: AbortSignal,
): Promise<Prepared> {
  const plan = tasks.map((task) => ({ task, image: mainImage(task, { force: false, read: textOf }) }));
  const bases = await configurationsOf(plan, deps, signal);
  return { starts: new Map(plan.map(({ task, image }) => [task.id, startOf(task, image, bases)])) };
}

const textOf = (path: string): string => readFileSync(path, "utf8");

async function configurationsOf(
  plan: readonly { task: Task; image: TaskImage }[],
  deps: PrepareDeps,
  signal: AbortSignal,
): Promise<Configurations> {
  const wanted = plan.flatMap(({ image: { origin } }): Wanted[] =>
    origin.kind === "base" ? [{ reference: origin.reference, what: "base image" }] : []
  );
  const folder = plan[0]?.task.datasetFolder;
  if (wanted.length === 0 || folder === undefined) return { known: new Map(), fresh: {}, failed: new Map() };
  const path = join(folder, COMPOSE_IMAGES);
  const found = await readConfigurations(wanted, { ...deps, records: readRecordFile(path) }, signal);
  await record(path, found.fresh, deps, signal);
  return found;
}

/** Keeps what was read. A folder that cannot be written costs the reads of the next run, not this one. */
async function record(
  path: string,
  fresh: Readonly<Record<string, ImageRecord>>,
  deps: PrepareDeps,
  signal: AbortSignal,
): Promise<void> {
  if (Object.keys(fresh).length === 0) return;
  try {
    await updateRecordFile(path, (file) => withRecords(file, fresh), { clock: deps.clock, signal });
  } catch (error) {
    if (!(error instanceof HarborError) || error.code !== "store.unwritable") throw error;
    deps.emit({ kind: "note", text: `${error.message}; what was read is not kept for the next run` });
  }
}

function startOf(task: Task, { origin }: TaskImage, bases: Configurations): Start | HarborError {
  const named = (source: ImageNeed["source"]): ImageNeed => ({ taskId: task.id, source, ...startNeeds(task) });
  switch (origin.kind) {
    case "none":
      return { need: named({ kind: "none" }), finish: (image) => image };
    case "prebuilt":
    case "service":
      return { need: named({ kind: "named", reference: origin.reference }), finish: (image) => image };
    case "build":
      return { need: imageNeedOf(task), finish: (image) => image };
    case "base": {
      const record = bases.known.get(origin.reference);
      if (record === undefined) return bases.failed.get(origin.reference)!;
      const { image: reference, config, configDigest } = record;
      const aliases = reference === origin.reference ? [] : [origin.reference];
      return {
        need: named({ kind: "named", reference, aliases, ...(configDigest !== undefined && { configDigest }) }),
        finish: (image) => withDockerfile(image, origin.changes, config),
      };
    }
  }
}
