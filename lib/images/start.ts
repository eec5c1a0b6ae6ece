/** How a provider is asked for an image, and what is made of its answer. Pure. */
import { HarborError } from "../errors.ts";
import type { ImageNeed, PreparedImage } from "../sandbox/provider.ts";
import type { Task } from "../task/task.ts";
import { localAlias } from "./alias.ts";
import type { BuildOutcomes } from "./builds.ts";
import type { Configurations } from "./configurations.ts";
import { withDockerfile } from "./dockerfile.ts";
import { imageNeedOf, type Origin, startNeeds } from "./plan.ts";
import type { ImageRecord } from "./records.ts";

export interface Start {
  /** Throws "not-built" for what no sandbox of this version gives. */
  need(): ImageNeed;
  /** What a provider answers to it, as the task's Dockerfile leaves it. */
  finish(image: PreparedImage): PreparedImage;
  /** What is started: pinned where that is known; undefined where there is no image. */
  reference: string | undefined;
  /** Names under which this machine may hold it, the reference first. */
  names: readonly string[];
}

/** The error is the one that kept the image from being had. */
export function startOf(
  task: Task,
  origin: Origin,
  built: BuildOutcomes,
  configurations: Configurations,
): Start | HarborError {
  switch (origin.kind) {
    case "none":
      return starting(task, { kind: "none" });
    case "prebuilt":
      return starting(task, { kind: "named", reference: origin.reference });
    case "service":
    case "base": {
      const record = configurations.known.get(origin.reference);
      if (record === undefined) return configurations.failed.get(origin.reference)!;
      const finish = origin.kind === "service"
        ? (image: PreparedImage) => ({ ...image, config: record.config })
        : (image: PreparedImage) => withDockerfile({ ...image, config: record.config }, origin.changes, record.config);
      return { ...starting(task, namedSource(record.image, origin.reference, record)), finish };
    }
    case "build": {
      const had = built.get(origin.build.name)!;
      if (had instanceof HarborError) return had;
      const start = starting(task, namedSource(had.reference, origin.build.name, had.record));
      const { note, record } = had;
      const config = record?.config;
      const finish = (image: PreparedImage): PreparedImage => ({
        ...image,
        ...(config !== undefined && { config }),
        notes: note === undefined ? image.notes : [...image.notes, note],
      });
      return { ...start, finish };
    }
  }
}

function starting(task: Task, source: ImageNeed["source"]): Start {
  return {
    need: () => ({ taskId: task.id, source, ...startNeeds(task) }),
    finish: (image) => image,
    reference: source.kind === "named" ? source.reference : undefined,
    names: namesOf(source),
  };
}

function namesOf(source: ImageNeed["source"]): string[] {
  if (source.kind !== "named") return [];
  const { reference, aliases = [], configDigest } = source;
  return [reference, ...aliases, ...(configDigest === undefined ? [] : [localAlias(reference, configDigest)])];
}

function namedSource(reference: string, alias: string, record: ImageRecord | undefined): ImageNeed["source"] {
  return {
    kind: "named",
    reference,
    ...(alias !== reference && { aliases: [alias] }),
    ...(record?.configDigest !== undefined && { configDigest: record.configDigest }),
  };
}

export const hostStart = (task: Task): Start => ({
  need: () => imageNeedOf(task),
  finish: (image) => image,
  reference: undefined,
  names: [],
});
