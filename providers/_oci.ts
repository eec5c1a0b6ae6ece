/** What docker and podman have in common as a provider; docker.ts and podman.ts say what is theirs. */
import { basename } from "node:path";
import { HarborError } from "../lib/errors.ts";
import { pullImage } from "../lib/images/pull.ts";
import { Gate, Shared } from "../lib/runtime/pool.ts";
import { labelsOf } from "../lib/sandbox/owner.ts";
import type {
  Diagnosis,
  ImageNeed,
  Leftover,
  LocalImage,
  Missing,
  OwnerFilter,
  PreparedImage,
  ProviderDeps,
  Sandbox,
  SandboxProvider,
  SandboxSpec,
  SweepReport,
} from "../lib/sandbox/provider.ts";
import type { ImageStore, StoredImage } from "../lib/store/store.ts";
import { refuseVariables } from "../lib/sandbox/variables.ts";
import type { Group, GroupSpec } from "../lib/sandbox/group.ts";
import { runArgv } from "./_oci_argv.ts";
import { ociClient } from "./_oci_client.ts";
import type { SandboxDeps } from "./_oci_deps.ts";
import { diagnosis } from "./_oci_diagnose.ts";
import type { Engine } from "./_oci_engine.ts";
import { type ImageHandle, inspectImage, localImage } from "./_oci_image.ts";
import { loadImage, saveImage } from "./_oci_images_io.ts";
import { listLeftovers, sweepLeftovers, sweepLeftoversNow } from "./_oci_leftovers.ts";
import { heldLimits, holdOf } from "./_oci_limits.ts";
import { type NamedDeps, namedImage, namesOf } from "./_oci_named.ts";
import { openGroup } from "./_oci_group.ts";
import { type EngineOptions, readOptions } from "./_oci_options.ts";
import { ownerVariable } from "./_oci_orphans.ts";
import { Pulls } from "./_oci_pull.ts";
import { OciSandbox } from "./_oci_sandbox.ts";
import { startContainer } from "./_oci_start.ts";

/** Our own client as the second way to a registry. */
function fetching(
  { registry, store, platform, emit, offline }: ProviderDeps,
  engine: Engine,
): Pick<NamedDeps, "fetch"> {
  if (registry === undefined || store === undefined || store.readOnly || offline) return {};
  return {
    fetch: async (reference, signal) => {
      const wanted = platform ?? (await engine.facts(signal)).platform;
      return await pullImage(reference, { registry, store, platform: wanted }, signal, emit);
    },
  };
}

export class OciProvider implements SandboxProvider {
  readonly name;
  readonly #options: EngineOptions;
  readonly #images = new Shared<PreparedImage>();
  readonly #networks = new Gate(1);
  readonly #sandboxDeps: SandboxDeps;
  readonly #namedDeps: Omit<NamedDeps, "storePlatform">;

  /** Throws "usage" for an option that there is not. */
  constructor(private readonly engine: Engine, deps: ProviderDeps) {
    this.name = engine.program.engine;
    this.#options = readOptions(this.name, deps.options);
    const { runner, clock, emit, scratch } = deps;
    // Goes to every client as it is (inheritedEnv()).
    const env = { ...deps.env, ...ownerVariable(basename(scratch)) };
    this.#sandboxDeps = {
      program: engine.program,
      client: ociClient(engine.program),
      runner,
      clock,
      env,
      emit,
      scratch,
      gate: new Gate(engine.concurrency),
      registryDigests: engine.registryDigests?.bind(engine),
    };
    const pulls = new Pulls(this.#sandboxDeps, deps.platform, deps.registries ?? new Map());
    this.#namedDeps = {
      ...this.#sandboxDeps,
      offline: deps.offline ?? false,
      platform: deps.platform,
      store: deps.store,
      pull: (reference, signal) => pulls.get(reference, signal),
      ...fetching(deps, engine),
    };
  }

  diagnose(signal: AbortSignal, depth: "quick" | "thorough" = "thorough"): Promise<Diagnosis> {
    return diagnosis(this.engine, this.#sandboxDeps, signal, depth);
  }

  async prepare(need: ImageNeed, signal: AbortSignal): Promise<PreparedImage> {
    const { source, taskId } = need;
    if (source.kind === "none") {
      throw new HarborError(
        "task.unsupported",
        `${taskId} has neither docker_image nor environment/Dockerfile: ${this.name} cannot start it`,
        {
          hint: "name an image in task.toml, or use --sandbox host",
        },
      );
    }
    const facts = await this.engine.facts(signal);
    if (need.limits.gpus && !facts.gpus) {
      throw new HarborError(
        "task.unsupported",
        `${taskId} asks for ${need.limits.gpus} GPU(s): ${this.name} offers none here`,
      );
    }
    // Builders make images of Dockerfiles, under the name that stands here.
    const from = source.kind === "named" ? source : { kind: "named" as const, reference: source.tag };
    const named = { ...this.#namedDeps, storePlatform: this.#namedDeps.platform ?? facts.platform };
    const image = await this.#images.get(JSON.stringify(from), () => namedImage(named, from, signal));
    return { ...image, notes: [...image.notes, ...heldLimits(need.limits, this.name, facts).notes] };
  }

  async local(reference: string, signal: AbortSignal): Promise<LocalImage | undefined> {
    for (const name of namesOf(this.name, { kind: "named", reference })) {
      const image = await inspectImage(this.#sandboxDeps, name, signal);
      if (image !== undefined) return localImage(image);
    }
  }

  takeIn(image: StoredImage, store: ImageStore, names: string[], signal: AbortSignal): Promise<void> {
    return loadImage(this.#sandboxDeps, image, store, names, signal);
  }

  saveInto(reference: string, store: ImageStore, names: string[], signal: AbortSignal): Promise<StoredImage> {
    return saveImage(this.#sandboxDeps, reference, store, names, signal);
  }

  open(spec: SandboxSpec, signal: AbortSignal): Promise<Sandbox> {
    const name = `gym-harbor-${spec.owner.run}-${spec.episode}-${spec.role}`.replace(/[^A-Za-z0-9_.-]/g, "-");
    return this.#open(spec, undefined, name, signal);
  }

  /** `member`: flags of a group's member instead of a network. */
  async #open(
    spec: SandboxSpec,
    member: readonly string[] | undefined,
    name: string,
    signal: AbortSignal,
  ): Promise<OciSandbox> {
    refuseVariables(spec.env);
    const facts = await this.engine.facts(signal);
    const { network: publicNetwork, pidsLimit, runArgs } = this.#options;
    const { limits, notes } = heldLimits(spec.limits, this.name, facts);
    const argv = runArgv(this.engine.program, {
      name,
      labels: labelsOf(spec.owner, spec.episode, spec.role),
      image: (spec.image.handle as ImageHandle).id,
      network: spec.network,
      publicNetwork,
      limits,
      pids: facts.limits.pids ? pidsLimit : undefined,
      proxies: !this.#namedDeps.offline && spec.network !== "no-network",
      member,
      extra: runArgs,
    });
    const { control, tools } = await startContainer(name, argv, spec, this.#sandboxDeps, signal);
    const onHost = member === undefined && spec.network === "public" && publicNetwork === "host";
    const all = [...new Set([...spec.image.notes, ...notes])];
    return new OciSandbox(
      { name, spec, tools, notes: all, limits: holdOf(facts.limits), network: onHost ? "host" : spec.network },
      control,
      this.#sandboxDeps,
    );
  }

  async noGroups(signal: AbortSignal): Promise<Missing | undefined> {
    return (await this.engine.facts(signal)).noGroups;
  }

  async openGroup(spec: GroupSpec, signal: AbortSignal): Promise<Group> {
    const facts = await this.engine.facts(signal);
    return await openGroup(
      {
        ...this.#sandboxDeps,
        facts,
        options: this.#options,
        offline: this.#namedDeps.offline,
        networks: this.#networks,
        open: (box, member, name, aborted) => this.#open(box, member, name, aborted),
      },
      spec,
      signal,
    );
  }

  list(filter: OwnerFilter, signal: AbortSignal): Promise<Leftover[]> {
    return listLeftovers(this.#sandboxDeps, filter, signal);
  }

  sweep(filter: OwnerFilter, signal: AbortSignal): Promise<SweepReport> {
    return sweepLeftovers(this.#sandboxDeps, filter, signal);
  }

  sweepNow(run: string): void {
    sweepLeftoversNow(this.#sandboxDeps, run);
  }
}
