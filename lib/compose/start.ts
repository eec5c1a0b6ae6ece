/**
 * Starts the services of a Compose task over a provider's group (spec/images-and-sandboxes §6.5–6.6): one after the other
 * in their order, each once those it waits for are as far as it wants them; then the health of all. What was started is
 * ended by the group's disposal, in reverse, whatever happens here.
 */
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { HarborError, isAbort } from "../errors.ts";
import { ending } from "../excerpt.ts";
import type { Clock } from "../runtime/clock.ts";
import type { Gate } from "../runtime/pool.ts";
import type { Group, GroupSpec, Service } from "../sandbox/group.ts";
import type { Sandbox, SandboxSpec } from "../sandbox/provider.ts";
import { Unhealthy, untilHealthy } from "./health.ts";
import type { Dependency } from "./plan.ts";
import type { ResolvedGroup, ResolvedService } from "./resolve.ts";
import { saveLogs, StartedGroup } from "./running.ts";
import { stageMounts } from "./stage.ts";

export interface GroupRequest {
  group: ResolvedGroup;
  /** What main is opened with; owner, episode, network and lifetime of the others come from it. */
  main: SandboxSpec;
  /** Environment of every sandbox, below what the file says. */
  sandboxEnv: Record<string, string>;
  /** The run's copy of what the file mounts; null when it mounts nothing. */
  mounted: string | null;
  /** Folder of this episode for writable mounts; made when needed, removed with the group. */
  scratch: string;
  /** Where the sidecars' output goes when the start fails. */
  logs: string;
}

export interface GroupDeps {
  openGroup(spec: GroupSpec, signal: AbortSignal): Promise<Group>;
  clock: Clock;
  /** How many starts engines are asked for at once, in all groups together (F5, F6). */
  gate: Gate;
}

/** A service did not come up; the message names it and carries the end of its output. */
export class ServiceFailed extends Error {
  override readonly name = "ServiceFailed";
}

const START_LIMIT_MS = 1_200_000;
const TAIL_BYTES = 4096;

/**
 * Resolves when main is open and every sidecar's health check has passed. Throws ServiceFailed, and what starting a
 * sandbox throws; then everything is gone again, and the logs of what had been started are kept.
 */
export async function startGroup(request: GroupRequest, deps: GroupDeps, signal: AbortSignal): Promise<StartedGroup> {
  const limit = deps.clock.deadline(START_LIMIT_MS, signal);
  const opened = await inTurn(deps.gate, limit, () => deps.openGroup(groupSpec(request), limit));
  const starting = new Starting(request, deps, opened, limit);
  try {
    return await starting.all();
  } catch (error) {
    await starting.end();
    signal.throwIfAborted();
    if (!limit.aborted) throw error;
    throw new ServiceFailed(`the group did not start within ${START_LIMIT_MS / 1000} s (${starting.doing})`);
  }
}

function groupSpec({ group: { services, volumes }, main }: GroupRequest): GroupSpec {
  const named = services.filter(({ member }) => member.networkOf === undefined && member.noNetwork !== true);
  return {
    owner: main.owner,
    episode: main.episode,
    network: main.network,
    members: named.map(({ member: { service, aliases } }) => ({ service, aliases })),
    volumes,
  };
}

async function inTurn<T>(gate: Gate, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
  using _place = await gate.enter(signal);
  return await work();
}

/** A group on its way up. */
class Starting {
  readonly #services = new Map<string, Service>();
  /** By sidecar with a health check, from its start on. */
  readonly #health = new Map<string, Promise<void>>();
  /** By sidecar that somebody waits for: its end is one long question. */
  readonly #ends = new Map<string, Promise<{ exitCode: number | null }>>();
  readonly #done = new Set<string>();
  /** Ends probes and questions once the group is up, or never will be. */
  readonly #over = new AbortController();
  readonly #signal: AbortSignal;
  #main: Sandbox | undefined;
  /** What is going on, for the message of a limit. */
  doing = "opening it";

  constructor(
    private readonly request: GroupRequest,
    private readonly deps: GroupDeps,
    private readonly group: Group,
    private readonly limit: AbortSignal,
  ) {
    this.#signal = AbortSignal.any([limit, this.#over.signal]);
  }

  async all(): Promise<StartedGroup> {
    for (const service of this.request.group.services) {
      for (const dependency of service.dependsOn) await this.#await(dependency, service.name);
      this.doing = `starting '${service.name}'`;
      await this.#start(service);
    }
    for (const name of this.#health.keys()) {
      if (!this.#done.has(name)) await this.#healthy(name, "the group needs it");
    }
    this.#over.abort();
    const members = { main: this.#main!, services: this.#services, done: this.#done };
    return new StartedGroup(members, this.group, this.request.scratch, this.deps.clock);
  }

  /** Undoes what was begun; the reason for it is thrown by who calls. */
  async end(): Promise<void> {
    this.#over.abort();
    await saveLogs(this.#services, this.request.logs);
    await this.group[Symbol.asyncDispose]().then(undefined, () => {});
    await rm(this.request.scratch, { recursive: true, force: true });
  }

  async #start(service: ResolvedService): Promise<void> {
    const { main, mounted, scratch, sandboxEnv } = this.request;
    const { name, image, limits, argv, stop, healthcheck } = service;
    const member = { ...service.member, mounts: await stageMounts(service.mounts, mounted, join(scratch, name)) };
    if (name === "main") {
      const spec: SandboxSpec = member.noNetwork === true ? { ...main, network: "no-network" } : main;
      this.#main = await inTurn(this.deps.gate, this.limit, () => this.group.openMain(spec, member, this.limit));
      return; // what it runs, and then its health, is begun by the episode
    }
    // What a Dockerfile sets on an image that is started as it is, the engine does not know.
    const own = image.declared === undefined ? {} : { workdir: image.workdir, user: image.user || undefined };
    const { workdir = own.workdir, user = own.user } = service;
    const env = { ...sandboxEnv, ...image.declared, ...service.env };
    const spec = { ...member, ...stop, image, argv: argv!, env, workdir, user, limits, ttlMs: main.ttlMs };
    const begin = () =>
      this.group.startService(spec, this.limit).catch((error) => Promise.reject(inService(name, error)));
    const started = await inTurn(this.deps.gate, this.limit, begin);
    this.#services.set(name, started);
    if (healthcheck === null) return;
    const health = untilHealthy(healthcheck, started, this.deps.clock, this.#signal);
    health.catch(() => {}); // told to whoever waits for it
    this.#health.set(name, health);
  }

  async #await({ service, condition }: Dependency, waiter: string): Promise<void> {
    if (condition === "service_healthy") await this.#healthy(service, `'${waiter}' waits for it`);
    if (condition === "service_completed_successfully") await this.#completed(service, waiter);
    // service_started: whoever is waited for comes first and has begun.
  }

  async #healthy(name: string, why: string): Promise<void> {
    this.doing = `waiting until '${name}' is healthy: ${why}`;
    const health = this.#health.get(name)!.then(() => null, (error: unknown) => ({ error }));
    const end = await Promise.race([health, this.#ended(name)]);
    if (end === null) return;
    if ("exitCode" in end) await this.#fail(name, `${exitText(end.exitCode)} before it was healthy`);
    else if (end.error instanceof Unhealthy) await this.#fail(name, end.error.message);
    else throw end.error;
  }

  async #completed(name: string, waiter: string): Promise<void> {
    this.doing = `waiting until '${name}' has ended: '${waiter}' waits for it`;
    const { exitCode } = await this.#ended(name);
    if (exitCode !== 0) await this.#fail(name, `${exitText(exitCode)}, and '${waiter}' waits for its good end`);
    this.#done.add(name);
  }

  #ended(name: string): Promise<{ exitCode: number | null }> {
    const known = this.#ends.get(name);
    if (known !== undefined) return known;
    const asked = this.#services.get(name)!.ended(this.#signal);
    asked.catch(() => {}); // the end of the start ends the question as well
    this.#ends.set(name, asked);
    return asked;
  }

  async #fail(name: string, what: string): Promise<never> {
    const printed = await this.#services.get(name)!.tail(TAIL_BYTES).catch(() => "");
    const output = ending(printed.trim(), TAIL_BYTES);
    throw new ServiceFailed(`service '${name}' ${what}${output === "" ? "" : `: ${output}`}`);
  }
}

const exitText = (exitCode: number | null): string => (exitCode === null ? "ended" : `exited with ${exitCode}`);

/** A service that an engine cannot start is named; whose fault it was stays as the provider judged it. */
function inService(name: string, error: unknown): unknown {
  if (!(error instanceof HarborError) || isAbort(error) || error.code === "aborted") return error;
  return new HarborError(error.code, `service '${name}': ${error.message}`, {
    hint: error.hint,
    details: error.details,
    cause: error,
  });
}
