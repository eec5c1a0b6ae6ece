/**
 * Prepare, as the one list of steps that `validate`, `run` and `dataset prepare` share (images §1.3, steps 6 to 10).
 * Afterwards everything that a run needs to know about its images is on disk, and the next prepare asks nobody.
 */
import { readFileSync } from "node:fs";
import type { ComposePlan, ComposeReading } from "../compose/mod.ts";
import { contextHash } from "../digest/context.ts";
import { errno, HarborError } from "../errors.ts";
import type { Task } from "../task/task.ts";
import { type Build, collectBuilds } from "./build_set.ts";
import { type BuildDeps, type BuildOutcomes, haveBuilds } from "./builds.ts";
import { composeImages } from "./compose.ts";
import { type Configurations, type ConfigurationSources, readConfigurations, type Wanted } from "./configurations.ts";
import { type BuildOptions, platformOfOptions } from "./options.ts";
import { mainImage, type Origin, type PlanOptions, type TaskImage, verifierImages } from "./plan.ts";
import { COMPOSE_IMAGES, withRecords } from "./records.ts";
import { parseReference } from "./reference.ts";
import { hostStart, type Start, startOf } from "./start.ts";

export interface PrepareDeps extends BuildDeps, Pick<ConfigurationSources, "local" | "registry" | "fetch"> {
  /** A task's Compose files; null for a task that has none. */
  compose(task: Task): ComposeReading | null;
}

export interface Prepared {
  /** By task id: what each of its images is started from, by role; an error for one that cannot be had. */
  images: Map<string, Map<string, PreparedStart>>;
  /** Compose files as they were read, by task id. */
  compose: Map<string, ComposePlan>;
  /** Task id → why it is left out before anything was tried. */
  refused: Record<string, string>;
  /** Failed builds and configurations, once each, with the tasks they concern. */
  failures: Failure[];
  /** What was done about each image, for people. */
  done: Done[];
}

export type PreparedStart = Start | HarborError;

export interface Failure {
  /** `build`, or a configuration that could not be read. */
  kind: "build" | "configuration";
  name: string;
  tasks: string[];
  error: HarborError;
}

export interface Done {
  reference: string;
  how: "prebuilt" | "recorded" | "read" | "built" | "built before";
  tasks: string[];
}

/**
 * Throws "store.…" for records that cannot be read, "engine.missing" and the like when something must be built and
 * nobody can, the abort, and faults of our own. An image that cannot be had is no exception: it is in the answer.
 */
export async function prepareTasks(tasks: readonly Task[], deps: PrepareDeps, signal: AbortSignal): Promise<Prepared> {
  const { planned, compose, refused: unread } = planTasks(tasks, deps.options, deps.compose);
  for (const [task, { warnings }] of compose) {
    for (const text of warnings) deps.emit({ kind: "warning", text, task });
  }
  const { builds, refused: unlike } = collectBuilds(buildsIn(planned), platformOfOptions(deps.options));
  const built = await haveBuilds(builds, deps, signal);
  const configurations = await configurationsOf(planned, deps, signal);
  return { ...settled(planned, { builds, refused: { ...unread, ...unlike }, built, configurations }), compose };
}

/** For `host`, which applies a Dockerfile to this machine's own root: nothing is asked or recorded. */
export function prepareOnHost(tasks: readonly Task[], readCompose: PrepareDeps["compose"] = () => null): Prepared {
  const prepared: Prepared = { images: new Map(), compose: new Map(), refused: {}, failures: [], done: [] };
  for (const task of tasks) {
    const reading = readCompose(task);
    if (reading?.ok === false) prepared.refused[task.id] = reading.reason;
    else prepared.images.set(task.id, new Map([["main", hostStart(task)]]));
    if (reading?.ok === true) prepared.compose.set(task.id, reading.plan);
  }
  return prepared;
}

interface Planned {
  task: Task;
  images: TaskImage[];
}

interface Plan {
  planned: Planned[];
  compose: Map<string, ComposePlan>;
  /** Task id → why its Compose file, or the name of an image, was refused. */
  refused: Record<string, string>;
}

/** Every image that a run of the tasks starts. */
export function planTasks(
  tasks: readonly Task[],
  { force }: Pick<BuildOptions, "force">,
  readCompose: PrepareDeps["compose"],
): Plan {
  const options: PlanOptions = {
    force,
    read: textOf,
    hash: (folder, image) => contextHash(folder, { ...(image !== undefined && { dockerImage: image }) }),
  };
  const plan: Plan = { planned: [], compose: new Map(), refused: {} };
  for (const task of tasks) {
    const reading = readCompose(task);
    if (reading?.ok === false) {
      plan.refused[task.id] = reading.reason;
      continue;
    }
    if (reading !== null) plan.compose.set(task.id, reading.plan);
    const agentSide = reading === null ? [mainImage(task, options)] : composeImages(task, reading.plan, options);
    const images = [...agentSide, ...verifierImages(task, options)];
    const odd = noReference(images);
    if (odd === undefined) plan.planned.push({ task, images });
    else plan.refused[task.id] = odd;
  }
  return plan;
}

/** Why a name among a task's images is none: no engine or registry need be asked about it. */
function noReference(images: readonly TaskImage[]): string | undefined {
  for (const { origin } of images) {
    if (!("reference" in origin)) continue;
    try {
      parseReference(origin.reference);
    } catch (error) {
      if (!(error instanceof HarborError)) throw error;
      return error.message;
    }
  }
  return undefined;
}

function textOf(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    if (["ENOENT", "ENOTDIR", "EISDIR"].includes(errno(error) ?? "")) return undefined;
    throw error;
  }
}

const buildsIn = (plan: readonly Planned[]) =>
  plan.map(({ task, images }) => ({
    taskId: task.id,
    builds: images.flatMap(({ origin }) => (origin.kind === "build" ? [origin.build] : [])),
  }));

/** Reads what is not recorded, and records it; what was read before a failure is kept. */
async function configurationsOf(
  plan: readonly Planned[],
  deps: PrepareDeps,
  signal: AbortSignal,
): Promise<Configurations> {
  const wanted = plan.flatMap(({ images }) => images.flatMap(({ origin }) => wantedBy(origin)));
  const sources: ConfigurationSources = {
    ...deps,
    platform: platformOfOptions(deps.options),
    records: deps.records.images,
    progress: (reference, done, total) =>
      deps.emit({ kind: "prepare", step: "image", text: `read ${reference}`, done, total }),
  };
  const found = await readConfigurations(wanted, sources, signal);
  if (Object.keys(found.fresh).length > 0) {
    await deps.records.update(COMPOSE_IMAGES, (file) => withRecords(file, found.fresh), signal);
  }
  return found;
}

function wantedBy(origin: Origin): Wanted[] {
  if (origin.kind === "base") return [{ reference: origin.reference, what: "base image" }];
  return origin.kind === "service" ? [{ reference: origin.reference, what: "Compose image" }] : [];
}

interface Findings {
  builds: Build[];
  refused: Record<string, string>;
  built: BuildOutcomes;
  configurations: Configurations;
}

function settled(
  plan: readonly Planned[],
  { builds, refused, built, configurations }: Findings,
): Omit<Prepared, "compose"> {
  const left = plan.filter(({ task }) => !Object.hasOwn(refused, task.id));
  const images = new Map(left.map(({ task, images: all }) => [
    task.id,
    new Map(all.map(({ role, origin }) => [role, startOf(task, origin, built, configurations)])),
  ]));
  const users = tasksByReference(left);
  const failures: Failure[] = [
    ...builds.flatMap(({ name, tasks }): Failure[] => {
      const error = built.get(name);
      return error instanceof HarborError ? [{ kind: "build", name, tasks, error }] : [];
    }),
    ...Array.from(configurations.failed, ([name, error]): Failure => {
      return { kind: "configuration", name, tasks: users.get(name) ?? [], error };
    }),
  ];
  return { images, refused, failures, done: doneAbout(left, builds, built, configurations) };
}

function tasksByReference(plan: readonly Planned[]): Map<string, string[]> {
  const users = new Map<string, string[]>();
  for (const { task, images } of plan) {
    for (const { origin } of images) {
      if (!("reference" in origin)) continue;
      const tasks = users.get(origin.reference) ?? [];
      if (tasks.at(-1) !== task.id) users.set(origin.reference, [...tasks, task.id]);
    }
  }
  return users;
}

function doneAbout(
  plan: readonly Planned[],
  builds: readonly Build[],
  built: BuildOutcomes,
  { known, fresh }: Configurations,
): Done[] {
  const named = Array.from(tasksByReference(plan), ([reference, tasks]): Done[] => {
    const record = known.get(reference);
    if (record !== undefined) {
      const how = Object.hasOwn(fresh, reference) ? "read" : "recorded";
      return [{ reference: record.image, how, tasks }];
    }
    const isPrebuilt = plan.some(({ images }) =>
      images.some(({ origin }) => origin.kind === "prebuilt" && origin.reference === reference)
    );
    return isPrebuilt ? [{ reference, how: "prebuilt", tasks }] : [];
  });
  const made = builds.flatMap(({ name, tasks }): Done[] => {
    const had = built.get(name);
    if (had === undefined || had instanceof HarborError) return [];
    return [{ reference: had.reference, how: had.fresh ? "built" : "built before", tasks }];
  });
  return [...named.flat(), ...made].sort((a, b) => (a.reference < b.reference ? -1 : 1));
}
