/**
 * What apptainer and enroot have in common as providers: images as one file, made from our store; a control shell that
 * the tool's client is attached to; limits by control groups of ours where this machine lets us; no network of their
 * own but none at all. apptainer.ts and enroot.ts say what is theirs.
 */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { cpus } from "node:os";
import { join } from "node:path";
import process from "node:process";
import type { Emit } from "../lib/events.ts";
import { HarborError } from "../lib/errors.ts";
import { envOf, thisPlatform } from "../lib/images/config.ts";
import { Gate, Shared } from "../lib/runtime/pool.ts";
import { inheritedEnv } from "../lib/runtime/runner.ts";
import { decisiveLine } from "../lib/sandbox/failure.ts";
import { concerns, isAlive, newRunId } from "../lib/sandbox/owner.ts";
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
import { scratchFolders, scratchRoot } from "../lib/sandbox/scratch.ts";
import { refuseVariables } from "../lib/sandbox/variables.ts";
import { cacheFolder } from "../lib/store/folder.ts";
import { type FileImageDeps, imageFile, namedFile, withTree } from "./_cluster_image.ts";
import { inGroups } from "./_cluster_launch.ts";
import { endNamespace, initOf, killNamespace, namespaceOf } from "./_cluster_processes.ts";
import { ClusterSandbox } from "./_cluster_sandbox.ts";
import type { ClusterTool, Place, ToolFacts } from "./_cluster_tool.ts";
import { findImage, type Found } from "./_layers_find.ts";
import { type Groups, makeGroups, MAX_PROCESSES, removeGroups, removeGroupsNow } from "./_namespace_limits.ts";
import { BOXES, boxesIn, note, removeBase, removeBaseNow, type SandboxState, stateOf } from "./_namespace_state.ts";
import type { BoxClient } from "./_oci_client.ts";
import { Control, LineEnded } from "./_oci_control.ts";
import type { BoxDeps } from "./_oci_deps.ts";
import { heldLimits, holdOf } from "./_oci_limits.ts";
import { setUp } from "./_oci_start.ts";
import { asRoot, oddVariables } from "./_oci_verdict.ts";

const BEGIN_MS = 600_000;
const PID_FIRST_MS = 10;
const PID_POLL_MS = 500;
/** How both tools begin what they end with. */
const FATAL = /^\s*(?:FATAL|ERROR|\[ERROR\])/m;
const CONVERT_MS = 1_800_000;
const REMOVE_MS = 60_000;

/** What the provider keeps of a prepared image. */
interface FileImage {
  path: string;
}

export class ClusterProvider implements SandboxProvider {
  readonly name;
  readonly #deps: ProviderDeps;
  readonly #gate: Gate;
  readonly #shared = new Shared<unknown>();
  readonly #folder: string;
  #next = 0;
  #held: Groups["holds"] | undefined;

  constructor(private readonly tool: ClusterTool, deps: ProviderDeps, private readonly maxProcesses = MAX_PROCESSES) {
    this.name = tool.name;
    this.#deps = { ...deps, env: inheritedEnv(deps.env) };
    this.#gate = new Gate(tool.concurrency);
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

  // --- images ---

  async prepare(need: ImageNeed, signal: AbortSignal, emit: Emit): Promise<PreparedImage> {
    const facts = await this.tool.facts(signal);
    this.#refuse(need, facts);
    const image = await this.#image(need, facts, signal, emit);
    this.#refuseUsers(need.taskId, [image.user], facts);
    if (need.network === "no-network") await this.#probeNoNetwork(need.taskId, image, facts, signal);
    const notes = need.network === "no-network" ? [] : [`network: ${this.name} shares this machine's`];
    return { ...image, notes: [...image.notes, ...notes, ...this.#limits(need.limits, facts).notes] };
  }

  #refuse({ taskId, source, network, limits, users }: ImageNeed, facts: ToolFacts): void {
    const refuse = (why: string, hint?: string): never => {
      throw new HarborError("task.unsupported", `${taskId} ${why}`, { hint });
    };
    if (source.kind === "none") {
      refuse(
        `has no image, and --sandbox ${this.name} starts from one`,
        "--sandbox host runs it on this machine's root",
      );
    }
    if (network === "no-network" && this.tool.probeNoNetwork === undefined) {
      refuse(`asks for no network: ${this.name} shares this machine's`, "use --sandbox namespace, podman or docker");
    }
    if (limits.gpus && !facts.gpus) refuse(`asks for ${limits.gpus} GPU(s): there is none here`);
    this.#refuseUsers(taskId, users, facts);
  }

  #refuseUsers(taskId: string, users: readonly (string | undefined)[], facts: ToolFacts): void {
    const other = facts.users === "any" ? undefined : users.find((user) => asRoot(user) !== undefined);
    if (other === undefined) return;
    throw new HarborError(
      "task.unsupported",
      `${taskId} runs commands as ${other}, and ${this.name} has one id only here (${facts.usersReason})`,
      { hint: facts.faults.find(({ what }) => what === facts.usersReason)?.fix ?? "use --sandbox podman or docker" },
    );
  }

  async #image(need: ImageNeed, facts: ToolFacts, signal: AbortSignal, emit: Emit): Promise<PreparedImage> {
    const { source } = need;
    const { name, suffix } = this.tool;
    const given = source.kind === "named" ? namedFile(source.reference, suffix) : undefined;
    if (given !== undefined) {
      const notes = [`${given} says nothing of its user, working directory and entrypoint: root, / and none`];
      return { reference: given, workdir: "/", env: {}, user: "", entrypoint: [], notes, handle: { path: given } };
    }
    const { reference, stored } = await this.#find(need, signal, emit).catch((error) => {
      if (source.kind !== "dockerfile" || !(error instanceof HarborError) || error.code !== "image.failed") throw error;
      throw new HarborError("task.unsupported", `${need.taskId}: ${name} cannot build environment/Dockerfile`, {
        hint: "build it where docker, buildah or podman are and carry it here: gym-harbor bundle export there, " +
          "gym-harbor bundle import here",
        cause: error,
      });
    });
    const { store } = this.#deps;
    const path = await (this.#shared.get(`file ${stored.config.digest}`, () => {
      const files = this.#files();
      const make = (to: string) =>
        withTree(stored, store!, (tree) => this.#squash(reference, tree, to, facts, signal), files, signal);
      emit({ kind: "note", text: `${name}: ${reference} becomes a .${suffix} file in ${files.cache}` });
      return imageFile(stored.config.digest, suffix, make, files, signal);
    }) as Promise<string>);
    const config = stored.file.config ?? {};
    return {
      reference,
      workdir: config.WorkingDir || "/",
      env: envOf(config),
      user: config.User ?? "",
      entrypoint: config.Entrypoint ?? [],
      config,
      notes: [],
      handle: { path } satisfies FileImage,
    };
  }

  #find(need: ImageNeed, signal: AbortSignal, emit: Emit): Promise<Found> {
    const { source } = need;
    const { store, registry, offline = false, platform = thisPlatform() } = this.#deps;
    const key = source.kind === "named" ? source.reference : source.kind === "dockerfile" ? source.tag : need.taskId;
    return this.#shared.get(
      `find ${key}`,
      () => findImage(need, { store, registry, offline, platform }, signal, emit),
    ) as Promise<Found>;
  }

  #files(): FileImageDeps {
    const { runner, clock, env, scratch } = this.#deps;
    const { suffix, cacheVariable } = this.tool;
    return { runner, clock, cache: env[cacheVariable] || cacheFolder(env, suffix), scratch };
  }

  async #squash(reference: string, tree: string, to: string, facts: ToolFacts, signal: AbortSignal): Promise<void> {
    const { runner, env, scratch } = this.#deps;
    const options = { env: { ...env, ...this.tool.env(scratch, false) }, signal, deadlineMs: CONVERT_MS };
    const done = await runner.run(this.tool.squash(facts, tree, to), options);
    signal.throwIfAborted();
    if (done.exitCode === 0 && existsSync(to)) return;
    const why = done.ended === "deadline" ? `no end within ${CONVERT_MS / 1000} s` : decisiveLine(done.stderr);
    throw new HarborError("image.failed", `Cannot make a .${this.tool.suffix} file of ${reference}: ${why}`);
  }

  async #probeNoNetwork(taskId: string, image: PreparedImage, facts: ToolFacts, signal: AbortSignal): Promise<void> {
    const { runner, env, scratch } = this.#deps;
    const why = await (this.#shared.get("no-network", async () => {
      const argv = this.tool.probeNoNetwork!(facts, (image.handle as FileImage).path);
      const tried = await runner.run(argv, {
        env: { ...env, ...this.tool.env(scratch, false) },
        signal,
        deadlineMs: REMOVE_MS,
      });
      signal.throwIfAborted();
      return tried.exitCode === 0 ? "" : decisiveLine(tried.stderr);
    }) as Promise<string>);
    if (why === "") return;
    throw new HarborError("task.unsupported", `${taskId} asks for no network, which ${this.name} cannot give: ${why}`, {
      hint: "use --sandbox namespace, podman or docker",
    });
  }

  // --- limits ---

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

  // --- sandboxes ---

  async open(spec: SandboxSpec, signal: AbortSignal): Promise<Sandbox> {
    const env = { ...spec.image.env, ...spec.env };
    refuseVariables(env);
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
      await this.#takeAway(base, state);
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
          clean: () => this.#takeAway(place.base, state),
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
      const options = { env: this.#envOf(place), signal, deadlineMs: REMOVE_MS };
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

  // --- the end ---

  /** Whatever of a sandbox there is, once its tool was told to remove it. */
  async #takeAway(base: string, state: SandboxState): Promise<string | undefined> {
    const { runner, clock } = this.#deps;
    const namespace = state.init && namespaceOf(state.init);
    const env = this.#envOf({ base, gpu: false });
    const path = await this.tool.facts(clock.deadline(REMOVE_MS)).then((facts) => facts.path, () => this.name);
    const removed = await runner.run(this.tool.remove(path, state.id), { env, deadlineMs: REMOVE_MS })
      .catch((error) => ({ exitCode: 1, stderr: String(error) }));
    if (namespace !== undefined) await endNamespace(namespace, clock);
    await removeBase(base, { ids: process.getuid?.() === 0 ? "all" : "ranges" }, runner).catch(() => {});
    await removeGroups(state.groups, clock);
    return existsSync(base) ? `${base} could not be removed: ${decisiveLine(removed.stderr)}` : undefined;
  }

  #leftovers(filter: OwnerFilter): { leftover: Leftover; base: string; state: SandboxState }[] {
    const { env, scratch, clock } = this.#deps;
    const runs = new Set([...scratchFolders(scratchRoot(env)).map(({ folder }) => folder), scratch]);
    return [...runs].flatMap((run) => boxesIn(run, this.name)).flatMap((base) => {
      const state = stateOf(base);
      if (state === undefined || !concerns(filter, state.owner)) return [];
      const { id, owner } = state;
      const ageMs = Math.max(0, clock.now().getTime() - Date.parse(state.created));
      if (ageMs < (filter.olderThanMs ?? 0)) return [];
      return [{ base, state, leftover: { id, provider: this.name, owner, alive: isAlive(owner), ageMs } }];
    });
  }

  list(filter: OwnerFilter): Promise<Leftover[]> {
    return Promise.resolve(this.#leftovers(filter).map(({ leftover }) => leftover));
  }

  async sweep(filter: OwnerFilter): Promise<SweepReport> {
    const report: SweepReport = { removed: [], failed: [] };
    for (const { leftover, base, state } of this.#leftovers(filter)) {
      if (filter.evenAlive !== true && leftover.alive !== false) continue;
      const reason = await this.#takeAway(base, state);
      if (reason === undefined) report.removed.push(state.id);
      else report.failed.push({ id: state.id, reason });
    }
    return report;
  }

  sweepNow(run: string): void {
    for (const { base, state } of this.#leftovers({ run })) {
      const namespace = state.init && namespaceOf(state.init);
      const [program, ...args] = this.tool.remove(this.name, state.id);
      try {
        const env = this.#envOf({ base, gpu: false }) as Record<string, string>;
        execFileSync(program!, args, { env, timeout: 10_000, killSignal: "SIGKILL", stdio: "ignore" });
      } catch {
        // its processes and its folder go all the same
      }
      for (let round = 0; round < 50 && namespace !== undefined && killNamespace(namespace); round++);
      removeBaseNow(base);
      removeGroupsNow(state.groups);
    }
  }
}

const saidIn = (log: string | undefined): string | undefined =>
  log !== undefined && existsSync(log) ? readFileSync(log, "utf8") : undefined;
