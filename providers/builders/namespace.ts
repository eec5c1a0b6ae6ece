/**
 * Builds Dockerfiles where there is no engine: each stage that is needed is applied in a sandbox of our own on its real
 * base, and what it wrote becomes a layer of an image in our store. What it cannot do (secrets, binds, addresses, other
 * platforms, triggers of a base) is refused by the instruction's name; nothing is skipped in silence.
 */
import { appendFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, posix } from "node:path";
import process from "node:process";
import { Buffer } from "node:buffer";
import { HarborError } from "../../lib/errors.ts";
import type { Emit } from "../../lib/events.ts";
import type { Builder, BuildRequest, BuiltImage } from "../../lib/images/builder.ts";
import { envOf, type ImageConfig, type ImageFile, platformName } from "../../lib/images/config.ts";
import type { Clock } from "../../lib/runtime/clock.ts";
import type { ImageStore, StoredImage } from "../../lib/store/store.ts";
import { digestOf } from "../../lib/store/blobs.ts";
import { mediaTypesFor } from "../../lib/store/media.ts";
import { baseImages, type Stage, stagesOf } from "../../lib/task/dockerfile_stages.ts";
import { BuildContext } from "../_build_context.ts";
import { planStage, type StageCopyStep, type StagePlan, unsupported } from "../_build_plan.ts";
import { applySteps, type BuildBox, failUnlessDone, setAttributes } from "../_build_steps.ts";
import { FROM } from "../_layers_layout.ts";
import type { PackedLayer } from "../_layers_pack.ts";
import type { NamespaceProvider } from "../namespace.ts";
import { configWith, imageFile } from "./_image_file.ts";

export interface NamespaceBuilderDeps {
  store: ImageStore;
  clock: Clock;
  /** A provider for one build, which ends it. */
  provider: () => NamespaceProvider;
}

const ON = "builds.tool=namespace";

export class NamespaceBuilder implements Builder {
  readonly tool = "namespace";

  constructor(private readonly deps: NamespaceBuilderDeps) {}

  async preflight({ platform }: { platform: string }, signal: AbortSignal): Promise<string[]> {
    const here = platformName(`linux/${process.arch}`);
    if (platformName(platform) !== here) {
      throw new HarborError("machine.lacks", `${ON} builds for ${here} alone, not for ${platform}`, {
        hint: "build by docker or podman with emulation, or on a machine of that platform",
      });
    }
    if (this.deps.store.readOnly) {
      throw new HarborError(
        "machine.lacks",
        `${ON} keeps images in ${this.deps.store.folder}, which cannot be written`,
        {
          hint: "name another store: --image-store DIR",
        },
      );
    }
    await using provider = this.deps.provider();
    const { usable, missing } = await provider.diagnose(signal, "quick");
    if (usable) return [];
    const [first] = missing;
    throw new HarborError("engine.missing", `${ON} cannot be used: ${first?.what ?? "unknown"}`, { hint: first?.fix });
  }

  async has(name: string): Promise<boolean> {
    return await this.deps.store.find(name, platformName(`linux/${process.arch}`)) !== undefined;
  }

  async build(request: BuildRequest, signal: AbortSignal, emit: Emit): Promise<BuiltImage> {
    if (request.push) {
      throw new HarborError("usage", `${ON} keeps images in our own store and pushes none`, {
        hint: "leave builds.repository out, or build by docker, podman or buildah",
      });
    }
    mkdirSync(dirname(request.logFile), { recursive: true });
    writeFileSync(request.logFile, "");
    await using provider = this.deps.provider();
    const build = new Build(request, provider, this.deps, emit);
    try {
      return await build.run(signal);
    } catch (error) {
      if (error instanceof HarborError && !signal.aborted) appendFileSync(request.logFile, `\n${error.message}\n`);
      throw withLog(error, request);
    } finally {
      build.close();
    }
  }
}

/** A failure of the build names its log and what it was. */
function withLog(error: unknown, { logFile, name }: BuildRequest): unknown {
  if (!(error instanceof HarborError) || !["image.failed", "sandbox.failed", "task.unsupported"].includes(error.code)) {
    return error;
  }
  const hint = [error.hint, `the whole log is ${logFile}`].filter(Boolean).join("; ");
  const details = { class: "build", ...error.details, image: name, tool: "namespace", log: logFile };
  return new HarborError("image.failed", error.message, { hint, details, cause: error });
}

/** A stage as it came out, or an image of a registry. */
interface Made {
  /** Topmost first. */
  trees: string[];
  /** What this build wrote, lowest first, with the trees that were below it. */
  uppers: { folder: string; below: string[] }[];
  base: StoredImage | undefined;
  config: ImageConfig;
}

const NOTHING: Made = { trees: [], uppers: [], base: undefined, config: {} };

/** Long enough for a build that its own deadline does not end. */
const TTL_GRACE_MS = 600_000;

class Build {
  readonly #made = new Map<number, Promise<Made>>();
  readonly #images = new Map<string, Promise<Made>>();
  readonly #kept: string[] = [];
  readonly #over: number;
  readonly #text: string;
  #stages!: Stage[];
  #escape = "\\";

  constructor(
    private readonly request: BuildRequest,
    private readonly provider: NamespaceProvider,
    private readonly deps: NamespaceBuilderDeps,
    private readonly emit: Emit,
  ) {
    this.#over = deps.clock.ticks() + request.timeoutMs;
    this.#text = readFileSync(request.dockerfile, "utf8");
  }

  async run(signal: AbortSignal): Promise<BuiltImage> {
    const { args, platform, target } = this.request;
    const settings = { args, platform, ...(target !== undefined && { target }) };
    const bases = new Map<string, ImageConfig>();
    for (const reference of baseImages(this.#text, settings)) {
      bases.set(reference, (await this.#image(reference, signal)).config);
    }
    const staged = stagesOf(this.#text, {
      ...settings,
      baseEnv: (reference) => bases.has(reference) ? envOf(bases.get(reference)!) : undefined,
    });
    this.#stages = staged.stages;
    this.#escape = staged.escape;
    const index = target === undefined
      ? this.#stages.length - 1
      : this.#stages.findIndex(({ name }, at) => name === target.toLowerCase() || String(at) === target);
    if (index < 0) {
      const what = target === undefined ? "has no FROM" : `has no stage ${target}`;
      throw new HarborError("image.failed", `${this.request.name}: its Dockerfile ${what}`);
    }
    return await this.#finish(await this.#stage(index, signal), signal);
  }

  /** Removes what stages wrote, in its packed form or not needed at all. */
  close(): void {
    for (const folder of this.#kept) {
      try {
        rmSync(folder, { recursive: true, force: true });
      } catch {
        // other ids of our range wrote there: it goes with the run's scratch folder
      }
    }
  }

  #log = (text: string | Uint8Array): void => appendFileSync(this.request.logFile, text);

  #image(reference: string, signal: AbortSignal): Promise<Made> {
    let known = this.#images.get(reference);
    if (known === undefined) {
      known = this.provider.base(reference, signal, this.emit).then(({ stored, trees }): Made => ({
        trees,
        uppers: [],
        base: stored,
        config: stored.file.config ?? {},
      }));
      this.#images.set(reference, known);
    }
    return known;
  }

  #stage(index: number, signal: AbortSignal): Promise<Made> {
    let known = this.#made.get(index);
    if (known === undefined) this.#made.set(index, known = this.#make(index, signal));
    return known;
  }

  async #make(index: number, signal: AbortSignal): Promise<Made> {
    const stage = this.#stages[index]!;
    const base = await this.#baseOf(stage, signal);
    if (Array.isArray(base.config.OnBuild) && base.config.OnBuild.length > 0) {
      throw unsupported({ taskId: this.request.name, on: ON }, stage.from.line, "triggers of the base (ONBUILD)");
    }
    const plan = this.#plan(stage, base);
    const config = configWith(base.config, plan.settings);
    this.#log(`FROM line ${stage.from.line}: ${stage.from.rest}\n`);
    if (plan.steps.length === 0) return { ...base, config };
    const upper = await this.#apply(plan, base, index, signal);
    return {
      ...base,
      config,
      trees: [upper, ...base.trees],
      uppers: [...base.uppers, { folder: upper, below: base.trees }],
    };
  }

  async #baseOf({ base, from, platform }: Stage, signal: AbortSignal): Promise<Made> {
    const refuse = (what: string) => unsupported({ taskId: this.request.name, on: ON }, from.line, what);
    if (platform !== undefined && platformName(platform) !== platformName(this.request.platform)) {
      throw refuse(`FROM --platform=${platform}`);
    }
    switch (base.kind) {
      case "nothing":
        return NOTHING;
      case "stage":
        return await this.#stage(base.index, signal);
      case "image":
        return await this.#image(base.reference, signal);
      case "unknown":
        throw refuse(base.why);
    }
  }

  #plan(stage: Stage, { config }: Made): StagePlan {
    const { context, dockerfile, name } = this.request;
    const ignore = `${dockerfile}.dockerignore`;
    return planStage({
      taskId: name,
      on: ON,
      stage,
      escape: this.#escape,
      context: new BuildContext(context, existsSync(ignore) ? ignore : undefined),
      base: {
        workdir: config.WorkingDir || "/",
        user: config.User ?? "",
        env: envOf(config),
        ...(Array.isArray(config.Shell) && { shell: config.Shell as string[] }),
      },
      stages: true,
    });
  }

  /** Returns the folder of what the stage wrote. */
  async #apply({ steps }: StagePlan, base: Made, index: number, signal: AbortSignal): Promise<string> {
    const sources: string[] = [];
    const others: string[][] = [];
    for (const step of steps) {
      if (step.kind !== "stage-copy" || sources.includes(step.from)) continue;
      sources.push(step.from);
      others.push((await this.#source(step, index, signal)).trees);
    }
    const leftMs = this.#over - this.deps.clock.ticks();
    // A build without a RUN line needs no way out.
    const network = this.request.network !== "none" && steps.some(({ kind }) => kind === "run")
      ? "public"
      : "no-network";
    const box = await this.provider.openToBuild(base.trees, others, { ttlMs: leftMs + TTL_GRACE_MS, network }, signal);
    try {
      await applySteps(box, steps, {
        taskId: this.request.name,
        where: "in a sandbox of its base image",
        hint: await this.provider.oneId() ??
          "the same line fails in any container of that base, or needs what builds.tool=namespace does not give",
        deadlineMs: leftMs,
        clock: this.deps.clock,
        log: this.#log,
        copyFromStage: (step, ms) => this.#copy(box, step, `${FROM}/${sources.indexOf(step.from)}`, ms, signal),
      }, signal);
      const layer = await box.harvest();
      if (layer === undefined) {
        throw new HarborError("machine.lacks", `${ON} needs a disk that overlays can write to`, {
          hint: "set TMPDIR to a local ext4 or xfs disk",
        });
      }
      this.#kept.push(dirname(layer["/"]!));
      return layer["/"]!;
    } finally {
      await box[Symbol.asyncDispose]();
    }
  }

  async #source({ from }: StageCopyStep, index: number, signal: AbortSignal): Promise<Made> {
    const earlier = this.#stages.slice(0, index);
    const named = earlier.findLastIndex(({ name }) => name === from.toLowerCase());
    const at = named >= 0 ? named : /^\d+$/.test(from) && Number(from) < index ? Number(from) : -1;
    return at >= 0 ? await this.#stage(at, signal) : await this.#image(from, signal);
  }

  /** By our own `cp`, so that owners, links and attributes come along (BuildKit keeps them for COPY --from). */
  async #copy(box: BuildBox, step: StageCopyStep, root: string, leftMs: number, signal: AbortSignal): Promise<void> {
    const doing = `${this.request.name}: line ${step.line} of the Dockerfile`;
    const found = step.paths.map((path) => box.find(root, path));
    const absent = step.paths[found.findIndex((some) => some.length === 0)];
    if (absent !== undefined) {
      throw new HarborError("image.failed", `${doing} copies ${absent}, which is not in ${step.from}`, {
        details: { class: "build" },
      });
    }
    const sources = found.flat();
    const into = step.intoFolder || sources.length > 1 || box.isFolder(step.target);
    const folder = into || sources[0]!.children !== undefined ? step.target : posix.dirname(step.target);
    const copied = folder === step.target && !box.isFolder(folder) ? [folder] : [];
    await box.makeFolders([folder], "", signal);
    for (const { path, name, children } of sources) {
      // A folder's contents; its own owner and mode stay behind.
      const target = children !== undefined || !into ? step.target : posix.join(step.target, name);
      const from = children?.map((child) => `${root}${path}/${child}`) ?? [root + path];
      for (let at = 0; at < from.length; at += 500) {
        const some = from.slice(at, at + 500);
        const args = children === undefined ? ["-aT", "--", some[0]!, target] : ["-a", "-t", target, "--", ...some];
        failUnlessDone(await box.tool("cp", args, leftMs, signal), doing);
      }
      copied.push(...children?.map((child) => posix.join(target, child)) ?? [target]);
    }
    await setAttributes(box, copied, step, leftMs, doing, signal, ["-R"]);
  }

  /** Layers, configuration and manifest into the store. */
  async #finish(made: Made, signal: AbortSignal): Promise<BuiltImage> {
    const { store, clock } = this.deps;
    const { name, platform, labels = {} } = this.request;
    const work = store.workFolder();
    try {
      const layers: PackedLayer[] = [];
      for (const [at, { folder, below }] of made.uppers.entries()) {
        const path = join(work, `layer-${at}`);
        const layer = await this.provider.pack(folder, below, path, signal);
        if (layer.entries === 0) continue;
        await store.adopt(path, layer);
        layers.push(layer);
      }
      const config = Object.keys(labels).length === 0
        ? made.config
        : { ...made.config, Labels: { ...made.config.Labels as Record<string, string>, ...labels } };
      const file = imageFile({
        base: made.base?.file,
        config,
        platform,
        diffIds: layers.map(({ diffId }) => diffId),
        created: clock.now().toISOString(),
        by: `gym-harbor ${ON}`,
      });
      const stored = await this.#store(file, made.base, layers, signal);
      return { reference: name, configDigest: stored.config.digest, config, platform: stored.platform, pushed: false };
    } finally {
      rmSync(work, { recursive: true, force: true });
    }
  }

  async #store(
    file: ImageFile,
    base: StoredImage | undefined,
    added: readonly PackedLayer[],
    signal: AbortSignal,
  ): Promise<StoredImage> {
    const { store } = this.deps;
    const types = mediaTypesFor(file);
    const configBytes = Buffer.from(JSON.stringify(file));
    const config = { mediaType: types.config, digest: digestOf(configBytes), size: configBytes.length };
    await store.take(config, (offset) => Promise.resolve(onePart(configBytes.subarray(offset))), signal);
    const layers = [
      ...(base?.layers ?? []).map(({ mediaType, digest, size }) => ({
        mediaType: types.layer[compressionIn(mediaType)],
        digest,
        size,
      })),
      ...added.map(({ digest, size }) => ({ mediaType: types.layer.gzip, digest, size })),
    ];
    const manifestBytes = Buffer.from(
      JSON.stringify({ schemaVersion: 2, mediaType: types.manifest, config, layers }),
    );
    const manifest = { mediaType: types.manifest, digest: digestOf(manifestBytes), size: manifestBytes.length };
    return await store.add({ manifest, manifestBytes }, [this.request.name]);
  }
}

const compressionIn = (mediaType: string): "gzip" | "zstd" | "plain" =>
  mediaType.endsWith("zstd") ? "zstd" : mediaType.endsWith("gzip") ? "gzip" : "plain";

async function* onePart(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  if (bytes.length > 0) yield await Promise.resolve(bytes);
}
