/**
 * The build loop (images §1.3 steps 8 and 9, §3.6): what is recorded and still there is used again; the rest is built, a
 * few at a time, each recorded as soon as it is done, so that an interrupted prepare goes on at the next one.
 */
import { mkdirSync, rmdirSync } from "node:fs";
import { dirname } from "node:path";
import { HarborError, isAbort, messageOf } from "../errors.ts";
import type { Emit } from "../events.ts";
import { lockFile } from "../files/lock.ts";
import type { Clock } from "../runtime/clock.ts";
import { pool } from "../runtime/pool.ts";
import type { LocalImage } from "../sandbox/provider.ts";
import type { Build } from "./build_set.ts";
import { BUILT_IMAGES, type BuiltFact, builtRecord, withBuilt } from "./built.ts";
import type { Builder, BuildFailure, BuildRequest, BuiltImage } from "./builder.ts";
import { type BuildOptions, platformOfOptions } from "./options.ts";
import type { Records } from "./record_files.ts";
import { COMPOSE_IMAGES, type ImageRecord, recordFor, withRecords } from "./records.ts";
import { isObject } from "./record_file.ts";
import { type Reuse, reuseOf } from "./reuse.ts";

/** A built image, ready to be started. */
export interface Had {
  reference: string;
  record: ImageRecord | undefined;
  /** Built by this prepare; else it was recorded. */
  fresh: boolean;
  note?: string;
}

export interface BuildDeps {
  clock: Clock;
  emit: Emit;
  options: BuildOptions;
  /** False: builds.enabled=false or --offline. */
  mayBuild: boolean;
  records: Records;
  /** What this machine has under the name of an image that is recorded as local; `true` where no more is told. */
  present(reference: string, signal: AbortSignal): Promise<LocalImage | boolean>;
  /** Chosen and looked at once, when something is left to build. Throws "engine.missing", "machine.lacks", "usage". */
  builder(signal: AbortSignal): Promise<Builder>;
  /** Absolute path of the lock of one context, in a folder that may have to be made. */
  lockPath(hash: string): string;
  /** Absolute path of the log of one image. */
  logFile(name: string): string;
  /** Writes a Dockerfile that stands inside a Compose file, and returns its absolute path. */
  inlineFile(name: string, text: string): string;
}

/** By name: the image, or "image.failed" and the like with the reason of its tasks. */
export type BuildOutcomes = Map<string, Had | HarborError>;

const LOOKS_TOGETHER = 4;
/** Failures after which no other build can come out better. */
const HOPELESS: readonly (BuildFailure | undefined)[] = ["disk", "registry-limit", "credentials"];

/** Throws "engine.missing" and the like when there is nobody to build, "store.corrupt", the abort. */
export async function haveBuilds(
  builds: readonly Build[],
  deps: BuildDeps,
  signal: AbortSignal,
): Promise<BuildOutcomes> {
  const outcomes: BuildOutcomes = new Map();
  const left: Build[] = [];
  await pool(builds, LOOKS_TOGETHER, async (build) => {
    const found = await recorded(build, deps, signal);
    if (found.kind === "reuse") outcomes.set(build.name, found.had);
    else if (found.kind === "refuse") outcomes.set(build.name, refusal(build.name, found.reason, deps));
    else left.push(build);
  }, signal);
  signal.throwIfAborted();
  if (left.length > 0) await buildLeft(left, deps, outcomes, signal);
  await recordUse(builds, outcomes, deps, signal);
  return outcomes;
}

/** builds.enabled=false leaves the tasks out; under --offline the image is missing. */
const refusal = (name: string, reason: string, { options }: BuildDeps): HarborError =>
  options.enabled
    ? new HarborError("image.failed", reason, { details: { missing: name } })
    : new HarborError("task.unsupported", `${reason} (builds.enabled=false)`);

type Recorded = { kind: "reuse"; had: Had } | Exclude<Reuse, { kind: "reuse" }>;

/** What the records say now, and whether it is still true of this machine. */
async function recorded(build: Build, deps: BuildDeps, signal: AbortSignal): Promise<Recorded> {
  const { options, records, mayBuild } = deps;
  const platform = platformOfOptions(options);
  const built = builtRecord(records.built, build.hash);
  const reference = built?.services[build.service];
  const image = reference === undefined ? undefined : recordFor(records.images, keyOf(reference), platform);
  const { name, service, inputsDigest } = build;
  const reuse = reuseOf({ name, service, inputsDigest, platform, built, image }, {
    repository: options.repository,
    mayBuild,
  });
  if (reuse.kind !== "reuse") return reuse;
  const had: Had = {
    reference: reuse.reference,
    record: image,
    fresh: false,
    ...(reuse.note !== undefined && { note: reuse.note }),
  };
  const here = !reuse.check || await deps.present(reuse.reference, signal);
  if (here === true) return { kind: "reuse", had };
  if (here !== false) {
    const { config, configDigest, platform } = here;
    if (image?.configDigest === undefined || image.configDigest === configDigest) return { kind: "reuse", had };
    // Another engine's image of the same inputs, or, where nothing can be built, whatever has the name.
    const found = { image: reuse.reference, platform, config, configDigest };
    if (labelOf(here) === inputsDigest) return { kind: "reuse", had: { ...had, record: found } };
    const note = `${name} on this machine is not the image that is recorded; it is used as it is`;
    if (!mayBuild) return { kind: "reuse", had: { ...had, record: found, note } };
  }
  const why = here === false ? "its image is no longer on this machine" : "another image has its name on this machine";
  return mayBuild ? { kind: "build", why } : { kind: "refuse", reason: `${name} is not built: ${why}` };
}

/** Says in an image itself what it was built from: docker and podman on one machine keep their images apart. */
export const INPUTS_LABEL = "gym-harbor.inputs";

function labelOf({ config }: LocalImage): unknown {
  const { Labels } = config;
  return isObject(Labels) ? Labels[INPUTS_LABEL] : undefined;
}

/** The key of an image in compose-images.json: its name, without the digest that a push gave. */
const keyOf = (reference: string): string => reference.replace(/@sha256:.*$/, "");

async function buildLeft(
  left: readonly Build[],
  deps: BuildDeps,
  outcomes: BuildOutcomes,
  signal: AbortSignal,
): Promise<void> {
  const { options, emit } = deps;
  const builder = await deps.builder(signal);
  const plan = { heredocs: left.some(({ heredocs }) => heredocs), platform: options.platform };
  for (const text of await builder.preflight(plan, signal)) emit({ kind: "warning", text });
  let hopeless: { name: string; error: HarborError } | undefined;
  let done = 0;
  const one = async (build: Build): Promise<void> => {
    if (hopeless !== undefined) {
      const text = `${build.name} was not built, since ${hopeless.name} failed: ${messageOf(hopeless.error)}`;
      outcomes.set(build.name, new HarborError("image.failed", text, { hint: hopeless.error.hint }));
      return;
    }
    try {
      outcomes.set(build.name, await buildOne(build, builder, deps, signal));
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof HarborError) || isAbort(error) || error.code === "store.corrupt") throw error;
      outcomes.set(build.name, error);
      if (HOPELESS.includes(error.details?.class as BuildFailure | undefined)) hopeless ??= { name: build.name, error };
      emit({ kind: "warning", text: `${build.name} (${tasksText(build)}): ${error.message}` });
    }
    done++;
  };
  const contexts = Map.groupBy(left, ({ hash }) => hash).values();
  // Images of one context may begin with its main image, so they are built in turn, that one first.
  await pool(contexts, options.concurrency, async (ofContext) => {
    const mainFirst = [...ofContext].sort((a, b) => Number(b.service === "main") - Number(a.service === "main"));
    for (const build of mainFirst) {
      signal.throwIfAborted();
      await one(build);
      const text = `${build.name} (${tasksText(build)})`;
      emit({ kind: "prepare", step: "image", text, done, total: left.length });
    }
  }, signal);
  signal.throwIfAborted();
}

const tasksText = ({ tasks: [first, ...more] }: Build): string =>
  more.length === 0 ? first! : `${first} and ${more.length} more`;

/** Under the context's lock: another process may have built it meanwhile. */
async function buildOne(build: Build, builder: Builder, deps: BuildDeps, signal: AbortSignal): Promise<Had> {
  const { clock, emit, options, records } = deps;
  const timeoutMs = Math.min(options.timeout_s, build.timeoutSec) * 1000;
  const path = deps.lockPath(build.hash);
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  try {
    using _lock = await lockFile(path, {
      clock,
      signal,
      waitMs: timeoutMs + LOCK_SLACK_MS,
      onWait: (holder) => emit({ kind: "note", text: `waiting for the build of ${build.name} by ${holder}` }),
    });
    records.read();
    const meanwhile = await recorded(build, deps, signal);
    if (meanwhile.kind === "reuse") return meanwhile.had;
    emit({ kind: "note", text: `building ${build.name} with ${builder.tool} (${tasksText(build)}: ${build.reason})` });
    const image = await builder.build(requestOf(build, timeoutMs, deps), signal, emit);
    const record = recordOfBuild(build, image);
    await records.update(COMPOSE_IMAGES, (file) => withRecords(file, { [keyOf(image.reference)]: record }), signal);
    const fact = factOf(build, { ...image, tool: builder.tool });
    await records.update(BUILT_IMAGES, (file) => withBuilt(file, [fact]), signal);
    return { reference: image.reference, record, fresh: true };
  } finally {
    removeEmpty(dirname(path));
  }
}

const LOCK_SLACK_MS = 60_000;

function removeEmpty(folder: string): void {
  try {
    rmdirSync(folder);
  } catch {
    // others use it
  }
}

function requestOf(build: Build, timeoutMs: number, { options, logFile, inlineFile }: BuildDeps): BuildRequest {
  const { context, dockerfile, args, target, labels, shmSize, ulimits, noCache, pull, network, cacheFrom } = build;
  const repository = options.repository;
  return {
    context,
    dockerfile: "path" in dockerfile ? dockerfile.path : inlineFile(build.name, dockerfile.inline),
    name: repository === undefined ? build.name : `${repository}/${build.name}`,
    platform: options.platform,
    args,
    target,
    labels: { ...labels, [INPUTS_LABEL]: build.inputsDigest },
    shmSize,
    ulimits,
    noCache,
    pull,
    network,
    cacheFrom,
    timeoutMs,
    push: repository !== undefined,
    logFile: logFile(build.name),
  };
}

const recordOfBuild = (build: Build, image: BuiltImage): ImageRecord => ({
  image: image.reference,
  platform: image.platform,
  config: image.config,
  configDigest: image.configDigest,
  inputsDigest: build.inputsDigest,
});

function factOf(
  { hash, service, place, tasks, forcedTasks }: Build,
  { reference, tool, pushed, platform }: Pick<BuiltFact, "reference" | "tool" | "pushed" | "platform">,
): BuiltFact {
  return { hash, service, reference, tool, pushed, platform, context: place, tasks, forced: forcedTasks };
}

/** Which tasks use which context, also of those that were there already; nothing is written where nothing changed. */
async function recordUse(
  builds: readonly Build[],
  outcomes: BuildOutcomes,
  { records, options }: BuildDeps,
  signal: AbortSignal,
): Promise<void> {
  const moved = new Map<string, Set<string>>();
  for (const { tasks, hash } of builds) {
    for (const id of tasks) moved.set(id, (moved.get(id) ?? new Set()).add(hash));
  }
  await records.update(BUILT_IMAGES, (file) => {
    const facts = builds.flatMap((build) => {
      const had = outcomes.get(build.name);
      const known = builtRecord(file, build.hash);
      if (had === undefined || had instanceof HarborError || known === undefined) return [];
      const platform = known.platform ?? platformOfOptions(options);
      return [factOf(build, { reference: had.reference, tool: known.tool, pushed: known.pushed, platform })];
    });
    return withBuilt(file, facts, moved);
  }, signal);
}
