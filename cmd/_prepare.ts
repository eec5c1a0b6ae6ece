/** What prepare asks of a command: where configurations are read, who builds, where locks and logs lie. */
import { createHash } from "node:crypto";
import { accessSync, constants, writeFileSync } from "node:fs";
import { join } from "node:path";
import { chooseBuilder } from "../providers/builders/mod.ts";
import { withBundleNames } from "../lib/bundle/names.ts";
import type { ComposeRequest } from "../lib/compose/mod.ts";
import type { Context } from "../lib/context.ts";
import { HarborError } from "../lib/errors.ts";
import { offlineRefusal } from "../lib/episode/images.ts";
import type { Emit } from "../lib/events.ts";
import type { BuilderOptions } from "../lib/images/builder.ts";
import { type Prepared, prepareOnHost, prepareTasks } from "../lib/images/prepare.ts";
import { Records } from "../lib/images/record_files.ts";
import type { Start } from "../lib/images/start.ts";
import { LOCK_SUFFIX, scratchRoot } from "../lib/sandbox/scratch.ts";
import type { ImageNeed, SandboxProvider } from "../lib/sandbox/provider.ts";
import type { Task } from "../lib/task/task.ts";
import { composeReader } from "./_compose.ts";
import type { ImageSetup } from "./_images.ts";
import type { RunSandboxes } from "./_run_sandboxes.ts";

export interface PrepareRequest {
  tasks: readonly Task[];
  /** Absolute dataset folder, where the records lie. */
  folder: string;
  setup: ImageSetup;
  /** Name of the sandbox that will start the images; `auto` where it is not known. */
  sandbox: string;
  /** The sandbox, made on first need; undefined where this machine has none. */
  provider: () => Promise<SandboxProvider | undefined>;
  emit: Emit;
  /** The run's own folder on a disk of this machine. */
  scratch: string;
  /** Folder of build logs. */
  logs: string;
  /** Compose files that go over every task's own, absolute. */
  composeOverlays: readonly string[];
  /** The sandbox as far as Compose files are concerned; undefined where none was chosen yet. */
  groups: ComposeRequest["sandbox"];
  /** Of `folder`, read already; they hold afterwards what was found out, also where nothing can be written. */
  records?: Records;
}

/** Throws as prepareTasks(). */
export async function prepareImages(request: PrepareRequest, ctx: Context): Promise<Prepared> {
  const { tasks, setup, folder, sandbox, provider, emit, scratch, logs } = request;
  const { clock, runner, env, signal } = ctx;
  const compose = composeReader({
    hostEnv: env,
    overlays: request.composeOverlays,
    platform: setup.platform,
    sandbox: request.groups,
  });
  // `host` applies a Dockerfile to this machine's own root: it has no images.
  if (sandbox === "host") return prepareOnHost(tasks, compose);
  const { builds: options, offline } = setup;
  const local = async (reference: string, asking: AbortSignal) => await (await provider())?.local?.(reference, asking);
  const builder = once(async () => {
    const by = sandbox === "auto" ? (await provider())?.name ?? sandbox : sandbox;
    const { store, registry, unpackDir } = setup;
    const deps = { provider: by, runner, clock, env, scratch, store, registry, offline, unpackDir };
    return await chooseBuilder(builderOptions(setup), deps, signal);
  });
  const lockPath = options.repository !== undefined && isWritable(folder)
    ? (hash: string) => join(folder, ".gym-harbor", `build-${hash}.lock`)
    : (hash: string) => join(scratchRoot(env), `build-${storeKey(env)}-${hash}${LOCK_SUFFIX}`);
  const prepared = await prepareTasks(tasks, {
    compose,
    clock,
    emit,
    options,
    mayBuild: options.enabled && !offline,
    records: request.records ?? new Records(folder, { clock, emit }),
    local,
    ...(!offline && {
      registry: setup.registry,
      async fetch(reference: string, asking: AbortSignal) {
        const by = await provider();
        const source = { kind: "named", reference } as const;
        const need: ImageNeed = { taskId: reference, source, network: "public", limits: {}, users: [] };
        await by?.prepare(need, asking, emit);
        return await by?.local?.(reference, asking);
      },
    }),
    async present(reference, asking) {
      const by = await provider();
      if (by?.local === undefined) return await (await builder()).has(reference, asking);
      return await by.local(reference, asking) ?? false;
    },
    builder,
    lockPath,
    logFile: (name) => join(logs, `${name.replace(/^hb__/, "")}.log`),
    inlineFile(name, text) {
      const path = join(scratch, `${name}.Dockerfile`);
      writeFileSync(path, text);
      return path;
    },
  }, signal);
  return setup.bundle === undefined ? prepared : withBundleNames(prepared, setup.bundle.index);
}

const builderOptions = ({ builds, registries }: ImageSetup): BuilderOptions => ({
  ...(builds.tool !== undefined && { tool: builds.tool }),
  ...(builds.repository !== undefined && { repository: builds.repository }),
  platform: builds.platform,
  retries: builds.retries,
  retryDelayMs: builds.retry_delay_s * 1000,
  ...(builds.allow_local_podman !== undefined && { allowLocalPodman: builds.allow_local_podman }),
  ...(builds.storage_dir !== undefined && { storageDir: builds.storage_dir }),
  registries,
});

/** Tells one engine's images from another's: both may be reached from this machine. */
function storeKey(env: Context["env"]): string {
  const where = [env.DOCKER_HOST, env.DOCKER_CONTEXT, env.CONTAINER_HOST, env.CONTAINERS_STORAGE_CONF];
  return createHash("sha256").update(where.join("\n")).digest("hex").slice(0, 8);
}

function isWritable(folder: string): boolean {
  try {
    accessSync(folder, constants.W_OK | constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** The same promise for all who ask. */
export function once<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | undefined;
  return () => made ??= make();
}

/** A machine without a sandbox can prepare all the same: configurations come from registries then. */
export function lazily(sandboxes: RunSandboxes): () => Promise<SandboxProvider | undefined> {
  return once(() =>
    sandboxes.provider().catch((error: unknown) => {
      if (error instanceof HarborError && error.code === "engine.missing") return undefined;
      throw error;
    })
  );
}

/** The error of a prepare that could not record what it needs: all failures, at most ten of them shown (images §2.5). */
export function unrecorded(prepared: Prepared): HarborError | undefined {
  const failed = prepared.failures.filter(({ kind }) => kind === "configuration");
  if (failed.length === 0) return undefined;
  const shown = failed.slice(0, 10).map(({ error }) => error.message);
  const more = failed.length > shown.length ? [`and ${failed.length - shown.length} more`] : [];
  return new HarborError("image.failed", [...shown, ...more].join("\n"), {
    hint: failed[0]!.error.hint,
    details: { failed: Object.fromEntries(failed.map(({ name, error }) => [name, error.message])) },
  });
}

/** What is known to start, of every task. */
export function starts({ images }: Pick<Prepared, "images">): Start[] {
  return [...images.values()].flatMap((roles) => [...roles.values()])
    .filter((start): start is Start => !(start instanceof HarborError));
}

/** Under --offline every image must be here already, by one of its names. */
export async function refuseMissing(prepared: Prepared, isHere: (name: string) => Promise<boolean>): Promise<void> {
  const missing: Record<string, string> = {};
  for (const { name, error } of prepared.failures) missing[name] = error.message;
  const wanted = new Map(
    starts(prepared).flatMap(({ reference, names }) => reference === undefined ? [] : [[reference, names]]),
  );
  for (const [reference, names] of wanted) {
    let here = false;
    for (const name of names) here ||= await isHere(name);
    if (!here) missing[reference] = `${reference} is not on this machine`;
  }
  if (Object.keys(missing).length > 0) throw offlineRefusal(missing);
}
