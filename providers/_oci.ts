/** What docker and podman have in common as a provider; docker.ts and podman.ts say what is theirs. */
import { execFileSync } from "node:child_process";
import { basename } from "node:path";
import type { Emit } from "../lib/events.ts";
import { HarborError } from "../lib/errors.ts";
import { Gate, Shared } from "../lib/runtime/pool.ts";
import { decisiveLine, engineFailure } from "../lib/sandbox/failure.ts";
import { concerns, isAlive, LABEL, labelsOf, ownerOf } from "../lib/sandbox/owner.ts";
import type {
  Diagnosis,
  ImageNeed,
  Leftover,
  LocalImage,
  OwnerFilter,
  PreparedImage,
  ProviderDeps,
  Sandbox,
  SandboxProvider,
  SandboxSpec,
  SweepReport,
} from "../lib/sandbox/provider.ts";
import { refuseVariables } from "../lib/sandbox/variables.ts";
import { listArgv, removeArgv, runArgv, stateArgv } from "./_oci_argv.ts";
import type { SandboxDeps } from "./_oci_deps.ts";
import { diagnosis } from "./_oci_diagnose.ts";
import { type BuildDeps, builtImage } from "./_oci_dockerfile.ts";
import type { Engine } from "./_oci_engine.ts";
import { type ImageHandle, inspectImage, localImage } from "./_oci_image.ts";
import { heldLimits, holdOf } from "./_oci_limits.ts";
import { type NamedDeps, namedImage, namesOf } from "./_oci_named.ts";
import { type EngineOptions, readOptions } from "./_oci_options.ts";
import { endOrphans, ownerVariable } from "./_oci_orphans.ts";
import { Pulls } from "./_oci_pull.ts";
import { OciSandbox } from "./_oci_sandbox.ts";
import { startContainer } from "./_oci_start.ts";

const REMOVE_MS = 60_000;
/** Ids per removal: one command line, and bounded work for the engine. */
const REMOVE_TOGETHER = 20;

export class OciProvider implements SandboxProvider {
  readonly name;
  readonly #options: EngineOptions;
  readonly #images = new Shared<PreparedImage>();
  readonly #sandboxDeps: SandboxDeps;
  readonly #buildDeps: BuildDeps;
  readonly #namedDeps: NamedDeps;

  /** Its `env` goes to every client as it is (inheritedEnv()). */
  private readonly deps: ProviderDeps;

  /** Throws "usage" for an option that there is not. */
  constructor(private readonly engine: Engine, deps: ProviderDeps) {
    this.name = engine.program.engine;
    this.#options = readOptions(this.name, deps.options);
    this.deps = { ...deps, env: { ...deps.env, ...ownerVariable(basename(deps.scratch)) } };
    const { runner, clock, env, emit, scratch } = this.deps;
    this.#sandboxDeps = {
      program: engine.program,
      runner,
      clock,
      env,
      emit,
      scratch,
      gate: new Gate(engine.concurrency),
    };
    this.#buildDeps = { ...this.#sandboxDeps, builder: engine.builder };
    const pulls = new Pulls(this.#sandboxDeps, deps.platform);
    this.#namedDeps = {
      ...this.#sandboxDeps,
      offline: deps.offline ?? false,
      platform: deps.platform,
      pull: (reference, signal) => pulls.get(reference, signal),
    };
  }

  diagnose(signal: AbortSignal, depth: "quick" | "thorough" = "thorough"): Promise<Diagnosis> {
    return diagnosis(this.engine, this.#sandboxDeps, signal, depth);
  }

  async prepare(need: ImageNeed, signal: AbortSignal, emit: Emit): Promise<PreparedImage> {
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
    const key = source.kind === "named" ? JSON.stringify(source) : source.tag;
    const image = await this.#images.get(
      key,
      () =>
        source.kind === "named"
          ? namedImage(this.#namedDeps, source, signal)
          : builtImage(this.#buildDeps, source, signal, emit),
    );
    return { ...image, notes: [...image.notes, ...heldLimits(need.limits, this.name, facts).notes] };
  }

  async local(reference: string, signal: AbortSignal): Promise<LocalImage | undefined> {
    for (const name of namesOf(this.name, { kind: "named", reference })) {
      const image = await inspectImage(this.#sandboxDeps, name, signal);
      if (image !== undefined) return localImage(image);
    }
  }

  async open(spec: SandboxSpec, signal: AbortSignal): Promise<Sandbox> {
    refuseVariables(spec.env);
    const facts = await this.engine.facts(signal);
    const { network: publicNetwork, pidsLimit, runArgs } = this.#options;
    const { limits, notes } = heldLimits(spec.limits, this.name, facts);
    const name = `gym-harbor-${spec.owner.run}-${spec.episode}-${spec.role}`.replace(/[^A-Za-z0-9_.-]/g, "-");
    const argv = runArgv(this.engine.program, {
      name,
      labels: labelsOf(spec.owner, spec.episode, spec.role),
      image: (spec.image.handle as ImageHandle).id,
      network: spec.network,
      publicNetwork,
      limits,
      pids: facts.limits.pids ? pidsLimit : undefined,
      extra: runArgs,
    });
    const { control, tools } = await startContainer(name, argv, spec, this.#sandboxDeps, signal);
    const network = spec.network === "public" && publicNetwork === "host" ? "host" : spec.network;
    const all = [...new Set([...spec.image.notes, ...notes])];
    return new OciSandbox(
      { name, spec, tools, notes: all, limits: holdOf(facts.limits), network },
      control,
      this.#sandboxDeps,
    );
  }

  async list(filter: OwnerFilter, signal: AbortSignal): Promise<Leftover[]> {
    const { runner, env } = this.deps;
    const label = filter.run === undefined ? `${LABEL}.run` : `${LABEL}.run=${filter.run}`;
    const told = await runner.run(listArgv(this.engine.program, label), {
      env,
      signal,
      deadlineMs: REMOVE_MS,
      keepBytes: 16 << 20,
    });
    if (told.exitCode !== 0) throw this.#silent(told.stderr);
    const ids = told.stdout.split("\n").filter(Boolean);
    if (ids.length === 0) return [];
    const [program, ...words] = stateArgv(this.engine.program, "");
    const shown = await runner.run([program!, ...words.slice(0, -1), ...ids], {
      env,
      signal,
      deadlineMs: REMOVE_MS,
      keepBytes: 64 << 20,
    });
    return parsedContainers(shown.stdout).flatMap((container) => {
      const owner = ownerOf(container.Config?.Labels ?? {});
      if (owner === undefined || !concerns(filter, owner)) return [];
      const ageMs = Math.max(0, this.deps.clock.now().getTime() - Date.parse(container.Created));
      const id = container.Name.replace(/^\//, "");
      return [{ id, provider: this.name, owner, alive: isAlive(owner), ageMs }];
    }).filter(({ ageMs }) => ageMs >= (filter.olderThanMs ?? 0));
  }

  async sweep(filter: OwnerFilter, signal: AbortSignal): Promise<SweepReport> {
    const report: SweepReport = { removed: [], failed: [] };
    await endOrphans(this.engine.program, filter, this.deps.clock, signal);
    const found = (await this.list(filter, signal)).filter(({ alive }) => filter.evenAlive || alive === false);
    const { runner, env } = this.deps;
    for (let at = 0; at < found.length; at += REMOVE_TOGETHER) {
      const ids = found.slice(at, at + REMOVE_TOGETHER).map(({ id }) => id);
      const done = await runner.run(removeArgv(this.engine.program, ids), {
        env,
        signal,
        deadlineMs: REMOVE_MS,
        graceMs: 0,
      });
      signal.throwIfAborted();
      const left = done.exitCode === 0
        ? new Set<string>()
        : new Set((await this.list(filter, signal)).map(({ id }) => id));
      for (const id of ids) {
        if (!left.has(id)) report.removed.push(id);
        else report.failed.push({ id, reason: decisiveLine(done.stderr) });
      }
    }
    return report;
  }

  sweepNow(run: string): void {
    const call = ([program, ...args]: string[]) =>
      execFileSync(program!, args, {
        env: this.deps.env as Record<string, string>,
        timeout: 10_000,
        killSignal: "SIGKILL",
        stdio: ["ignore", "pipe", "ignore"],
        maxBuffer: 16 << 20,
      }).toString();
    const ids = call(listArgv(this.engine.program, `${LABEL}.run=${run}`)).split("\n").filter(Boolean);
    if (ids.length > 0) call(removeArgv(this.engine.program, ids));
  }

  #silent(stderr: string): HarborError {
    return new HarborError(
      "engine.missing",
      `${this.name} does not answer: ${engineFailure(stderr)?.line ?? decisiveLine(stderr)}`,
      {
        hint: "see gym-harbor doctor",
      },
    );
  }
}

interface Container {
  Name: string;
  Created: string;
  Config?: { Labels?: Record<string, string> | null };
}

/** A container that ended between the two calls makes inspect fail and still print the others. */
function parsedContainers(stdout: string): Container[] {
  try {
    return JSON.parse(stdout) as Container[];
  } catch {
    return [];
  }
}
