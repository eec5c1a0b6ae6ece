/**
 * The services of a Compose task without an engine: a bridge of their own (_namespace_bridge.ts), each service in a
 * sandbox on its image's layers, names in each one's /etc/hosts, volumes as folders. Everything lies below one folder
 * whose state file names the owner, so that a sweep ends what a killed run left.
 */
import { chmodSync, mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { Buffer } from "node:buffer";
import { HarborError } from "../lib/errors.ts";
import type { Clock } from "../lib/runtime/clock.ts";
import type { Runner } from "../lib/runtime/runner.ts";
import type { Group, GroupSpec, MemberSpec, Service, ServiceMount, ServiceSpec } from "../lib/sandbox/group.ts";
import { startTime } from "../lib/sandbox/owner.ts";
import type { Network, PreparedImage, Sandbox, SandboxSpec } from "../lib/sandbox/provider.ts";
import { refuseVariables } from "../lib/sandbox/variables.ts";
import type { LayersImage } from "./_layers_image.ts";
import type { Member } from "./_layers_layout.ts";
import type { MemberMount } from "./_layers_mounts.ts";
import { LayersService } from "./_layers_service.ts";
import { addressOf, Bridge, MOST_MEMBERS, SUBNET } from "./_namespace_bridge.ts";
import type { Boxes } from "./_namespace_boxes.ts";
import type { Confined } from "./_namespace_init.ts";
import type { Network as HeldNetwork } from "./_namespace_networks.ts";
import type { Lender } from "./_namespace_open.ts";
import type { NamespaceSandbox } from "./_namespace_sandbox.ts";
import { note } from "./_namespace_state.ts";

/** Should everything else fail. */
const GROUP_TTL_MS = 7 * 24 * 3_600_000;
const READY_MS = 60_000;

/** How a member's sandbox is opened, besides its spec. */
export interface MemberOpening {
  lender: Lender | undefined;
  direct: readonly string[];
  confined: Confined;
  member: Member;
}

export interface GroupDeps {
  boxes: Boxes;
  runner: Runner;
  clock: Clock;
  open(spec: SandboxSpec, opening: MemberOpening, signal: AbortSignal): Promise<NamespaceSandbox>;
  /** Copies what an image has at a path into a volume, as the image's root. */
  fill(image: PreparedImage, target: string, volume: string, signal: AbortSignal): Promise<void>;
}

/** Throws "sandbox.failed"; leaves nothing then. */
export async function openGroup(deps: GroupDeps, spec: GroupSpec, signal: AbortSignal): Promise<Group> {
  if (spec.members.length > MOST_MEMBERS) {
    throw new HarborError("sandbox.failed", `A group has ${spec.members.length} members, at most ${MOST_MEMBERS} fit`);
  }
  const machine = await deps.boxes.machine();
  const bridge = await Bridge.open({ runner: deps.runner, machine }, GROUP_TTL_MS);
  const { base, serial } = deps.boxes.makeBase(`${spec.episode}-group`);
  note(base, {
    id: `gym-harbor-${spec.owner.run}-${serial}`,
    owner: spec.owner,
    init: { pid: bridge.pid, start: startTime(bridge.pid) ?? "" },
    groups: [],
    created: deps.clock.now().toISOString(),
  });
  for (const name of ["volumes", "logs"]) mkdirSync(join(base, name), { mode: 0o711 });
  chmodSync(base, 0o711);
  signal.throwIfAborted();
  return new LayersGroup(deps, spec, bridge, base);
}

class LayersGroup implements Group {
  readonly #networks = new Map<string, Promise<HeldNetwork>>();
  readonly #filled = new Map<string, Promise<void>>();
  /** In the order of their start. */
  readonly #started: (LayersService | { main: NamespaceSandbox })[] = [];
  #kept = false;
  #disposed: Promise<void> | undefined;
  #serial = 0;

  constructor(
    private readonly deps: GroupDeps,
    private readonly spec: GroupSpec,
    private readonly bridge: Bridge,
    private readonly base: string,
  ) {}

  async startService(spec: ServiceSpec, signal: AbortSignal): Promise<Service> {
    refuseVariables(spec.env);
    const box = await this.#open(this.#boxSpec(spec), spec, signal);
    const { stack } = spec.image.handle as LayersImage;
    const log = join(this.base, "logs", `${++this.#serial}`);
    const service = new LayersService(box, spec, stack.hasShell, log, this.deps.clock);
    this.#started.push(service);
    await service.start();
    signal.throwIfAborted();
    return service;
  }

  #boxSpec(spec: ServiceSpec): SandboxSpec {
    return {
      image: spec.image,
      owner: this.spec.owner,
      episode: `${this.spec.episode}-${spec.service}`,
      role: "agent",
      env: spec.env,
      workdir: spec.workdir,
      user: spec.user,
      network: this.spec.network,
      limits: spec.limits,
      ttlMs: spec.ttlMs,
      readyTimeoutMs: READY_MS,
    };
  }

  async openMain(spec: SandboxSpec, member: MemberSpec, signal: AbortSignal): Promise<Sandbox> {
    const box = await this.#open({ ...spec, network: this.spec.network }, member, signal);
    this.#started.push({ main: box });
    const keep = box.keep.bind(box);
    box.keep = () => {
      this.#kept = true;
      this.bridge.keep();
      keep();
    };
    return box;
  }

  async #open(spec: SandboxSpec, member: MemberSpec, signal: AbortSignal): Promise<NamespaceSandbox> {
    const lender = member.noNetwork === true ? undefined : await this.#lender(member);
    const network: Network = lender === undefined ? "no-network" : spec.network;
    const mounts = await this.#mounts(member.mounts, spec.image, signal);
    const hostname = member.hostname ?? member.service;
    const hosts = [...this.#hosts(member, hostname), ...Object.entries(member.extraHosts).map(hostLine)];
    return await this.deps.open({ ...spec, network }, {
      lender,
      direct: [...this.spec.members.flatMap(({ service, aliases }) => [service, ...aliases]), SUBNET],
      confined: { capDrop: member.capDrop, noNewPrivileges: member.noNewPrivileges, ulimits: member.ulimits },
      member: { hostname, hosts, mounts, ...(member.shmBytes !== undefined && { shmBytes: member.shmBytes }) },
    }, signal).catch((error) => {
      throw ofService(error, member.service);
    });
  }

  /** A member is known by its service's name and its aliases; who shares a network has the address of its owner. */
  #hosts(member: MemberSpec, hostname: string): string[] {
    const own = this.#indexOf(member.networkOf ?? member.service);
    const lines = this.spec.members.map(({ service, aliases }, at) =>
      `${addressOf(at)}\t${[...new Set([service, ...aliases, ...(at === own ? [hostname] : [])])].join(" ")}`
    );
    return own < 0 ? [`127.0.1.1\t${hostname}`, ...lines] : lines;
  }

  #indexOf = (service: string): number => this.spec.members.findIndex((one) => one.service === service);

  async #lender(member: MemberSpec): Promise<Lender> {
    const service = member.networkOf ?? member.service;
    let network = this.#networks.get(service);
    if (network === undefined) {
      const socket = this.spec.network === "public" ? await this.deps.boxes.proxySocket() : undefined;
      const index = this.#indexOf(service);
      if (index < 0) throw new HarborError("sandbox.failed", `Service ${service} has no address in its group`);
      this.#networks.set(service, network = this.bridge.join(index, socket));
    }
    return { take: () => network, give: () => {} };
  }

  async #mounts(mounts: readonly ServiceMount[], image: PreparedImage, signal: AbortSignal): Promise<MemberMount[]> {
    const placed: MemberMount[] = [];
    for (const mount of mounts) {
      switch (mount.kind) {
        case "bind":
        case "tmpfs":
          placed.push(mount);
          break;
        case "scratch": {
          const source = await this.#volume(` scratch ${++this.#serial}`, mount.target, image, false, signal);
          placed.push({ kind: "bind", source, target: mount.target, readOnly: false });
          break;
        }
        case "volume": {
          const source = await this.#volume(mount.name, mount.target, image, mount.noCopy, signal);
          placed.push({ kind: "bind", source, target: mount.target, readOnly: mount.readOnly });
        }
      }
    }
    return placed;
  }

  /** The folder of a volume; a new one gets what the image has at its first target. */
  async #volume(
    name: string,
    target: string,
    image: PreparedImage,
    noCopy: boolean,
    signal: AbortSignal,
  ): Promise<string> {
    const folder = join(this.base, "volumes", Buffer.from(name).toString("hex").slice(0, 200));
    let filled = this.#filled.get(name);
    if (filled === undefined) {
      mkdirSync(folder, { mode: 0o755 });
      chmodSync(folder, 0o755);
      this.#filled.set(name, filled = noCopy ? Promise.resolve() : this.deps.fill(image, target, folder, signal));
    } else if (!noCopy && readdirSync(folder).length === 0) {
      await filled;
      this.#filled.set(name, filled = this.deps.fill(image, target, folder, signal));
    }
    await filled;
    return folder;
  }

  [Symbol.asyncDispose](): Promise<void> {
    if (this.#kept) return Promise.resolve();
    return (this.#disposed ??= this.#dispose());
  }

  async #dispose(): Promise<void> {
    for (const one of this.#started.toReversed()) {
      if ("main" in one) await one.main[Symbol.asyncDispose]();
      else await one.stop();
    }
    for (const one of this.#started) if (!("main" in one)) one.close();
    this.bridge.close();
    await this.deps.boxes.discardBase(this.base);
  }
}

const hostLine = ([name, address]: [string, string]): string => `${address}\t${name}`;

/** A failure names the service that it is of. */
function ofService(error: unknown, service: string): unknown {
  if (!(error instanceof HarborError) || error.code !== "sandbox.failed") return error;
  const { hint, details } = error;
  return new HarborError(error.code, `Service ${service}: ${error.message}`, { hint, details, cause: error });
}
