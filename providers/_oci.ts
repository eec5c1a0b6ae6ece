/** What docker and podman have in common as a provider; docker.ts and podman.ts say what is theirs. */
import { execFileSync } from "node:child_process";
import { basename } from "node:path";
import type { Emit } from "../lib/events.ts";
import { HarborError } from "../lib/errors.ts";
import { settlesWithin } from "../lib/runtime/clock.ts";
import { Gate, Shared } from "../lib/runtime/pool.ts";
import { decisiveLine, engineFailure } from "../lib/sandbox/failure.ts";
import { concerns, isAlive, LABEL, labelsOf, ownerOf } from "../lib/sandbox/owner.ts";
import type {
  Diagnosis,
  ImageNeed,
  Leftover,
  Limits,
  OwnerFilter,
  PreparedImage,
  ProviderDeps,
  Sandbox,
  SandboxProvider,
  SandboxSpec,
  SweepReport,
} from "../lib/sandbox/provider.ts";
import { refuseVariables } from "../lib/sandbox/variables.ts";
import { type BuildTool, listArgv, type Program, removeArgv, runArgv, stateArgv } from "./_oci_argv.ts";
import { Control, LineEnded } from "./_oci_control.ts";
import { builtImage, type ImageDeps, type ImageHandle, namedImage } from "./_oci_image.ts";
import type { SandboxDeps } from "./_oci_deps.ts";
import { type EngineOptions, readOptions } from "./_oci_options.ts";
import { OciSandbox, type Tools } from "./_oci_sandbox.ts";
import { asRoot, oddVariables } from "./_oci_verdict.ts";
import { endOrphans, ownerVariable } from "./_oci_orphans.ts";
import { setupScript } from "./_oci_scripts.ts";

/** What an engine says about itself and its machine. */
export interface EngineFacts {
  version: string;
  cpus: number;
  /** Limits that really hold; false ones are left out of command lines and noted. */
  limits: { cpu: boolean; memory: boolean; pids: boolean };
  gpus: boolean;
}

/** What differs between engines. */
export interface Engine {
  program: Program;
  /** Simultaneous command-line processes at work on a start, a removal or an image. */
  concurrency: number;
  /** Asks the engine; throws "engine.missing". Shared by all who wait. */
  facts(signal: AbortSignal): Promise<EngineFacts>;
  builder(): Promise<BuildTool>;
  diagnose(signal: AbortSignal, depth: "quick" | "thorough"): Promise<Diagnosis>;
}

const PULL_MS = 1_800_000;
const REMOVE_MS = 60_000;
/** How long an engine may take to bring up what is to be undone. */
const START_UP_MS = 20_000;
/** Ids per removal: one command line, and bounded work for the engine. */
const REMOVE_TOGETHER = 20;

export class OciProvider implements SandboxProvider {
  readonly name;
  readonly #options: EngineOptions;
  readonly #images = new Shared<PreparedImage>();
  readonly #sandboxDeps: SandboxDeps;
  readonly #imageDeps: ImageDeps;

  /** Its `env` goes to every client as it is (inheritedEnv()). */
  private readonly deps: ProviderDeps;

  /** Throws "usage" for an option that there is not. */
  constructor(private readonly engine: Engine, deps: ProviderDeps) {
    this.name = engine.program.engine;
    this.#options = readOptions(this.name, deps.options);
    this.deps = { ...deps, env: { ...deps.env, ...ownerVariable(basename(deps.scratch)) } };
    const { runner, clock, env, emit } = this.deps;
    this.#sandboxDeps = { program: engine.program, runner, clock, env, emit, gate: new Gate(engine.concurrency) };
    this.#imageDeps = { ...this.#sandboxDeps, scratch: deps.scratch, builder: engine.builder, pullMs: PULL_MS };
  }

  diagnose(signal: AbortSignal, depth: "quick" | "thorough" = "thorough"): Promise<Diagnosis> {
    return this.engine.diagnose(signal, depth);
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
    const key = source.kind === "named" ? source.reference : source.tag;
    const image = await this.#images.get(
      key,
      () =>
        source.kind === "named"
          ? namedImage(this.#imageDeps, source.reference, signal)
          : builtImage(this.#imageDeps, source, signal, emit),
    );
    return { ...image, notes: [...image.notes, ...this.#limits(need.limits, facts).notes] };
  }

  async open(spec: SandboxSpec, signal: AbortSignal): Promise<Sandbox> {
    refuseVariables(spec.env);
    const facts = await this.engine.facts(signal);
    const { network: publicNetwork, pidsLimit, runArgs } = this.#options;
    const { limits, notes, hold } = this.#limits(spec.limits, facts);
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
    const { control, tools } = await this.#start(name, argv, spec, signal);
    const network = spec.network === "public" && publicNetwork === "host" ? "host" : spec.network;
    const all = [...new Set([...spec.image.notes, ...notes])];
    return new OciSandbox(
      { name, spec, tools, notes: all, limits: hold, network },
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

  // --- starting ---

  /** Starts the container and its setup; leaves nothing when it does not come up. */
  async #start(
    name: string,
    argv: readonly string[],
    spec: SandboxSpec,
    signal: AbortSignal,
  ): Promise<{ control: Control; tools: Tools }> {
    const { runner, env, gate, clock } = this.#sandboxDeps;
    return await gate.hold(async () => {
      signal.throwIfAborted();
      const control = new Control(await runner.start(argv, { env }), clock);
      try {
        const tools = await this.#setup(control, name, spec, signal);
        oddVariables(spec.env, tools.bash !== "");
        return { control, tools };
      } catch (error) {
        await this.#undo(control, name);
        throw error instanceof LineEnded ? this.#notStarted(control, spec, await control.ended) : error;
      }
    });
  }

  async #setup(control: Control, name: string, spec: SandboxSpec, signal: AbortSignal): Promise<Tools> {
    const text: Record<string, string> = { made: "", script: "", workdir: "" };
    const codes: Record<string, number> = {};
    let section = "made";
    let ready: string[] = [];
    const decoder = new TextDecoder();
    const workdir = spec.workdir ?? (spec.image.workdir || "/");
    const owner = asRoot(spec.user ?? spec.image.user);
    await control.ask(
      () => setupScript({ ttlSeconds: Math.ceil(spec.ttlMs / 1000), workdir, workdirOwner: owner, script: spec.setup }),
      "ready",
      {
        onMarker: ([verb, ...words]) => {
          if (verb === "made" || verb === "script" || verb === "owned") codes[verb] = Number(words[0]);
          section = verb === "made" ? "script" : verb === "workdir" ? "workdir" : "";
          if (verb === "ready") ready = words;
        },
        onData: (chunk) =>
          section in text && (text[section] += decoder.decode(chunk, { stream: true })).length < 1 << 20,
      },
      spec.readyTimeoutMs,
      signal,
    ).catch((error) => {
      if (error instanceof LineEnded || signal.aborted) throw error;
      throw new HarborError("sandbox.failed", `Sandbox ${name} was not ready within ${spec.readyTimeoutMs / 1000} s`, {
        cause: error,
      });
    });
    if (codes.made !== 0) {
      throw new HarborError(
        "sandbox.failed",
        `Cannot make the working directory ${workdir} in ${name}: ${decisiveLine(control.errors)}`,
      );
    }
    if (codes.script !== 0) {
      throw new HarborError(
        "sandbox.failed",
        `Setup of ${name} failed with exit code ${codes.script}: ${decisiveLine(text.script!)}`,
      );
    }
    const found = Object.fromEntries(
      ready.map((word) => [word.slice(0, word.indexOf("=")), word.slice(word.indexOf("=") + 1)]),
    );
    if (!found.cat) {
      throw new HarborError(
        "sandbox.failed",
        `The image of ${name} has no program named cat: BusyBox or coreutils are needed`,
      );
    }
    return {
      bash: found.bash ?? "",
      tar: Boolean(found.tar),
      workdir: text.workdir!.replace(/\n$/, "") || workdir,
      oomKills: found.oom ? Number(found.oom) : null,
    };
  }

  /** The client may still be starting it: ending its stdin makes it end as soon as it is there. */
  async #undo(control: Control, name: string): Promise<void> {
    control.close();
    await settlesWithin(control.ended, START_UP_MS, this.deps.clock);
    control.leave();
    const { runner, env, emit } = this.#sandboxDeps;
    const removed = await runner.run(removeArgv(this.engine.program, [name]), {
      env,
      deadlineMs: REMOVE_MS,
      graceMs: 0,
    });
    if (removed.exitCode === 0 || engineFailure(removed.stderr)?.kind === "no-container") return;
    emit({ kind: "warning", text: `sandbox ${name} could not be removed: ${decisiveLine(removed.stderr)}` });
  }

  #notStarted(control: Control, spec: SandboxSpec, exitCode: number): HarborError {
    const { reference } = spec.image;
    const failure = engineFailure(control.errors);
    switch (failure?.kind) {
      case "no-program":
      case "not-executable":
        return new HarborError("sandbox.failed", `Image ${reference} cannot run /bin/sh: ${failure.line}`, {
          hint: "a sandbox needs a POSIX shell at /bin/sh in the image (distroless images have none)",
        });
      case "daemon-down":
      case "no-permission":
        return new HarborError("engine.missing", `${this.name} does not answer: ${failure.line}`, {
          hint: "see gym-harbor doctor",
        });
      default:
        return new HarborError(
          "sandbox.failed",
          `Cannot start a sandbox of ${reference}: ${
            failure?.line ?? decisiveLine(control.errors)
          } (exit code ${exitCode})`,
          { details: { kind: failure?.kind ?? null } },
        );
    }
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

  // --- options and limits ---

  /** What of the task's limits this machine can hold, and a note for the rest. */
  #limits(
    asked: Limits,
    { cpus, limits: can, gpus }: EngineFacts,
  ): { limits: Limits; notes: string[]; hold: Sandbox["limits"] } {
    const notes: string[] = [];
    const limits: Limits = {};
    if (asked.cpus !== undefined) {
      if (!can.cpu) notes.push(`cpus = ${asked.cpus} is not enforced: ${this.name} cannot limit CPUs here`);
      else if (asked.cpus > cpus) notes.push(`cpus = ${asked.cpus}: this machine has ${cpus}`);
      else limits.cpus = asked.cpus;
    }
    if (asked.memoryMb !== undefined) {
      if (can.memory) limits.memoryMb = asked.memoryMb;
      else notes.push(`memory_mb = ${asked.memoryMb} is not enforced: ${this.name} cannot limit memory here`);
    }
    if (asked.storageMb !== undefined) notes.push(`storage_mb = ${asked.storageMb} is not enforced by ${this.name}`);
    if (asked.gpus && gpus) limits.gpus = asked.gpus;
    const hold = can.cpu && can.memory && can.pids ? "enforced" : can.cpu || can.memory || can.pids ? "partly" : "none";
    return { limits, notes, hold };
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
