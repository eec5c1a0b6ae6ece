/**
 * What apptainer and enroot have in common as providers: images as one file, made from our store; a control shell that
 * the tool's client is attached to; limits by control groups of ours where this machine lets us; no network of their
 * own but none at all. apptainer.ts and enroot.ts say what is theirs.
 */
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { cpus } from "node:os";
import { join } from "node:path";
import type { Emit } from "../lib/events.ts";
import { HarborError } from "../lib/errors.ts";
import { thisPlatform } from "../lib/images/config.ts";
import { Gate } from "../lib/runtime/pool.ts";
import { inheritedEnv } from "../lib/runtime/runner.ts";
import { decisiveLine } from "../lib/sandbox/failure.ts";
import { newRunId } from "../lib/sandbox/owner.ts";
import type {
  Diagnosis,
  ImageNeed,
  Leftover,
  Limits,
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
import { inGroups } from "./_cluster_launch.ts";
import { ClusterLeftovers } from "./_cluster_leftovers.ts";
import { ClusterImages, type FileImage } from "./_cluster_prepare.ts";
import { initOf } from "./_cluster_processes.ts";
import { ClusterSandbox } from "./_cluster_sandbox.ts";
import type { ClusterTool, Place, ToolFacts } from "./_cluster_tool.ts";
import { localImage } from "./_layers_image.ts";
import { type Groups, makeGroups, MAX_PROCESSES, removeGroupsNow } from "./_namespace_limits.ts";
import { BOXES, note, type SandboxState } from "./_namespace_state.ts";
import type { BoxClient } from "./_oci_client.ts";
import { Control, LineEnded } from "./_oci_control.ts";
import type { BoxDeps } from "./_oci_deps.ts";
import { heldLimits, holdOf } from "./_oci_limits.ts";
import { setUp } from "./_oci_start.ts";
import { oddVariables } from "./_oci_verdict.ts";

const BEGIN_MS = 600_000;
const PID_FIRST_MS = 10;
const PID_POLL_MS = 500;
/** How both tools begin what they end with. */
const FATAL = /^\s*(?:FATAL|ERROR|\[ERROR\])/m;
const LIST_MS = 60_000;

export class ClusterProvider implements SandboxProvider {
  readonly name;
  readonly #deps: ProviderDeps;
  readonly #gate: Gate;
  readonly #images: ClusterImages;
  readonly #leftovers: ClusterLeftovers;
  readonly #folder: string;
  #next = 0;
  #held: Groups["holds"] | undefined;

  constructor(private readonly tool: ClusterTool, deps: ProviderDeps, private readonly maxProcesses = MAX_PROCESSES) {
    this.name = tool.name;
    this.#deps = { ...deps, env: inheritedEnv(deps.env) };
    this.#gate = new Gate(tool.concurrency);
    this.#images = new ClusterImages(tool, this.#deps);
    this.#leftovers = new ClusterLeftovers(tool, this.#deps);
    this.#folder = join(deps.scratch, `${tool.name}-${newRunId()}`);
  }

  async diagnose(signal: AbortSignal): Promise<Diagnosis> {
    try {
      const facts = await this.tool.facts(signal);
      const noNetwork = this.tool.probeNoNetwork === undefined ? [] : ["no-network" as const];
      return {
        name: this.name,
        usable: true,
        missing: facts.faults,
        capabilities: {
          networks: ["public", ...noNetwork, "host"],
          limits: holdOf(this.#holds()),
          users: facts.users,
          build: false,
          gpu: facts.gpus,
          version: facts.version,
        },
      };
    } catch (error) {
      if (!(error instanceof HarborError)) throw error;
      const { message, hint } = error;
      return { name: this.name, usable: false, missing: [{ what: message, fix: hint ?? "" }], capabilities: null };
    }
  }

  async prepare(need: ImageNeed, signal: AbortSignal, emit: Emit): Promise<PreparedImage> {
    const facts = await this.tool.facts(signal);
    this.#images.refuse(need, facts);
    const image = await this.#images.get(need, facts, signal, emit);
    this.#images.refuseUsers(need.taskId, [image.user], facts);
    if (need.network === "no-network") await this.#images.probeNoNetwork(need.taskId, image, facts, signal);
    const notes = need.network === "no-network" ? [] : [`network: ${this.name} shares this machine's`];
    return { ...image, notes: [...image.notes, ...notes, ...this.#limits(need.limits, facts).notes] };
  }

  /** What control groups would hold here: the same for every sandbox, so it is tried once. */
  #holds(): Groups["holds"] {
    if (this.#held !== undefined) return this.#held;
    const groups = makeGroups(`gym-harbor-try-${newRunId()}`, { cpus: 1, memoryMb: 64 }, 64);
    removeGroupsNow(groups.folders);
    return this.#held = groups.holds;
  }

  #limits(asked: Limits, { gpus }: ToolFacts): { limits: Limits; notes: string[] } {
    return heldLimits(asked, this.name, { cpus: cpus().length, limits: this.#holds(), gpus });
  }

  async open(spec: SandboxSpec, signal: AbortSignal): Promise<Sandbox> {
    const env = { ...spec.image.env, ...spec.env };
    refuseVariables(env);
    if (spec.network === "no-network" && this.tool.probeNoNetwork === undefined) {
      throw new HarborError("task.unsupported", `${this.name} has no sandbox without this machine's network`);
    }
    const facts = await this.tool.facts(signal);
    const serial = `${spec.episode}-${spec.role}-${++this.#next}`.replace(/[^A-Za-z0-9_.-]/g, "_");
    const base = join(this.#folder, BOXES, serial);
    mkdirSync(base, { recursive: true, mode: 0o700 });
    const { limits, notes } = this.#limits(spec.limits, facts);
    const id = `gym-harbor-${spec.owner.run}-${serial}`;
    const groups = makeGroups(id, limits, this.maxProcesses);
    const place: Place = {
      id,
      base,
      image: (spec.image.handle as FileImage).path,
      network: spec.network !== "no-network",
      gpu: Boolean(limits.gpus),
      ttlSeconds: Math.ceil(spec.ttlMs / 1000),
    };
    const state: SandboxState = {
      id,
      owner: spec.owner,
      groups: groups.folders,
      created: this.#deps.clock.now().toISOString(),
    };
    note(base, state);
    try {
      return await this.#gate.hold(() => this.#start({ ...spec, env }, place, state, groups, notes, facts, signal));
    } catch (error) {
      await this.#leftovers.takeAway(base, state);
      throw error;
    }
  }

  async #start(
    spec: SandboxSpec,
    place: Place,
    state: SandboxState,
    groups: Groups,
    notes: readonly string[],
    facts: ToolFacts,
    signal: AbortSignal,
  ): Promise<Sandbox> {
    signal.throwIfAborted();
    const { tool } = this;
    const { runner, clock, emit, scratch } = this.#deps;
    const env = this.#envOf(place);
    const inside = (argv: string[]) => inGroups(groups.folders, argv);
    for (const name of Object.values(tool.env(place.base, place.gpu)).filter((one) => one.startsWith(place.base))) {
      mkdirSync(name, { recursive: true, mode: 0o700 });
    }
    let log: string | undefined;
    for (const step of tool.begin(facts, place)) {
      const begun = await runner.run(inside(step.argv), { env, signal, deadlineMs: BEGIN_MS });
      signal.throwIfAborted();
      log = step.log;
      if (begun.exitCode !== 0) throw this.#notStarted(spec, saidIn(log) ?? begun.stderr);
    }
    const pid = await this.#pid(facts, place, spec.readyTimeoutMs, () => saidIn(log), signal);
    if (pid === undefined) throw this.#notStarted(spec, saidIn(log) ?? "");
    note(place.base, Object.assign(state, { init: initOf(pid) }));
    const control = new Control(await runner.start(inside(tool.control(facts, place, pid)), { env }), clock);
    try {
      const tools = await setUp(control, place.id, spec, signal);
      oddVariables(spec.env, tools.bash !== "");
      const client = this.#grouped(tool.client(facts, place, pid), groups);
      const deps: BoxDeps = { client, runner, clock, env, emit, scratch, gate: this.#gate };
      return new ClusterSandbox(
        {
          name: place.id,
          spec,
          tools: { ...tools, oomKills: null },
          notes: [...new Set([...spec.image.notes, ...notes])],
          limits: holdOf(groups.holds),
          network: place.network ? "host" : "no-network",
          oomKills: () => groups.oomKills(),
          clean: () => this.#leftovers.takeAway(place.base, state),
        },
        control,
        deps,
      );
    } catch (error) {
      control.close();
      control.leave();
      throw error instanceof LineEnded ? this.#notStarted(spec, control.errors) : error;
    }
  }

  #grouped(client: BoxClient, { folders }: Groups): BoxClient {
    return { ...client, exec: (request) => inGroups(folders, client.exec(request)) };
  }

  #envOf({ base, gpu }: Pick<Place, "base" | "gpu">): Record<string, string | undefined> {
    return { ...this.#deps.env, ...this.tool.env(base, gpu) };
  }

  /** Its first process as this machine counts it; undefined when it ended at once, with what it said. */
  async #pid(
    facts: ToolFacts,
    place: Place,
    waitMs: number,
    said: () => string | undefined,
    signal: AbortSignal,
  ): Promise<number | undefined> {
    const { runner, clock } = this.#deps;
    const deadline = clock.ticks() + waitMs;
    for (let pause = PID_FIRST_MS;; pause = Math.min(2 * pause, PID_POLL_MS)) {
      const options = { env: this.#envOf(place), signal, deadlineMs: LIST_MS };
      const told = await runner.run(this.tool.list(facts, place.id), options);
      signal.throwIfAborted();
      const pid = this.tool.pid(told.stdout, place.id);
      if (pid !== undefined) return pid;
      if (FATAL.test(said() ?? "")) return undefined;
      if (clock.ticks() > deadline) {
        const why = decisiveLine(said() || told.stderr);
        throw new HarborError("sandbox.failed", `${this.name} does not list ${place.id}: ${why}`);
      }
      await clock.sleep(pause, signal);
    }
  }

  #notStarted(spec: SandboxSpec, said: string): HarborError {
    const why = decisiveLine(said);
    return new HarborError("sandbox.failed", `Cannot start a sandbox of ${spec.image.reference}: ${why}`);
  }

  async local(reference: string): Promise<LocalImage | undefined> {
    const { store, platform = thisPlatform() } = this.#deps;
    const found = await store?.find(reference, platform);
    return found && localImage(found);
  }

  list(filter: OwnerFilter): Promise<Leftover[]> {
    return Promise.resolve(this.#leftovers.list(filter));
  }

  sweep(filter: OwnerFilter): Promise<SweepReport> {
    return this.#leftovers.sweep(filter);
  }

  sweepNow(run: string): void {
    this.#leftovers.sweepNow(run);
  }
}

const saidIn = (log: string | undefined): string | undefined =>
  log !== undefined && existsSync(log) ? readFileSync(log, "utf8") : undefined;
