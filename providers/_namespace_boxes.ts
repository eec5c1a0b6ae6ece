/**
 * What a provider of sandboxes in namespaces holds on this machine for a run: its folder, the networks and the proxy of
 * public sandboxes, the sandboxes that are open and what is left of ended ones; and finding what dead owners left.
 */
import { existsSync, mkdirSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { HarborError, messageOf } from "../lib/errors.ts";
import { Shared } from "../lib/runtime/pool.ts";
import { concerns, isAlive, newRunId } from "../lib/sandbox/owner.ts";
import type {
  Leftover,
  Network,
  OwnerFilter,
  ProviderDeps,
  ProviderName,
  SandboxSpec,
  SweepReport,
} from "../lib/sandbox/provider.ts";
import { removeScratch, scratchFolders, scratchRoot } from "../lib/sandbox/scratch.ts";
import { removeGroups, removeGroupsNow, sweepGroups } from "./_namespace_limits.ts";
import { lookAtMachine, type Machine } from "./_namespace_machine.ts";
import { Networks } from "./_namespace_networks.ts";
import { type Household, type OpenRequest, openSandbox, type Rootfs } from "./_namespace_open.ts";
import { type Proxy, startProxy } from "./_namespace_proxy.ts";
import type { NamespaceSandbox } from "./_namespace_sandbox.ts";
import {
  BOXES,
  boxesIn,
  endState,
  killState,
  removeBase,
  removeBaseNow,
  type SandboxState,
  STATE,
  stateOf,
} from "./_namespace_state.ts";

/** Folders of ended sandboxes that may wait for their removal. */
const MOST_DISCARDED = 32;

export class Boxes implements AsyncDisposable {
  /** Where the provider keeps its layers, sockets and sandboxes. */
  readonly folder: string;
  readonly #shared = new Shared<unknown>();
  readonly #open = new Set<NamespaceSandbox>();
  readonly #household: Household;
  #next = 0;
  #networks: Networks | undefined;
  #proxy: Proxy | undefined;
  #discarding: Promise<void> = Promise.resolve();
  #discarded = 0;

  constructor(private readonly name: ProviderName, private readonly deps: ProviderDeps) {
    this.folder = join(deps.scratch, `${name}-${newRunId()}`);
    this.#household = {
      controls: [],
      makeControl: () => {
        const folder = join(this.folder, `control-${this.serial()}`);
        mkdirSync(folder, { mode: 0o700 });
        return folder;
      },
      discard: (base) => this.#discard(base),
    };
  }

  /** A number that no folder of this provider has yet. */
  serial(): number {
    return ++this.#next;
  }

  machine(): Promise<Machine> {
    return this.#shared.get("machine", () => lookAtMachine(this.deps.runner)) as Promise<Machine>;
  }

  /** Starts a public network ahead of need. */
  async warm(): Promise<void> {
    (await this.#publicNetworks(await this.machine())).warm();
  }

  /**
   * Opens a sandbox in an empty folder. Throws "machine.lacks" for a folder whose name mount options cannot hold,
   * "task.unsupported", "sandbox.failed".
   */
  async open(
    spec: SandboxSpec,
    how:
      & { machine: Machine; rootfs: Rootfs; network: Network; maxProcesses: number }
      & Partial<Pick<OpenRequest, "lender" | "direct" | "confined">>,
    signal: AbortSignal,
  ): Promise<NamespaceSandbox> {
    const { machine, network } = how;
    if (/[,:\\"']/.test(this.folder)) {
      throw new HarborError(
        "machine.lacks",
        `Overlays cannot lie below ${this.folder}: its name holds , : \\ or a quote`,
        { hint: "set TMPDIR to a folder of a plainer name" },
      );
    }
    if (network === "no-network" && machine.loopback === undefined) {
      throw new HarborError("task.unsupported", "No program here can bring up loopback in a network of its own", {
        hint: "install iproute2",
      });
    }
    const lender = how.lender ?? (network === "public" ? await this.#publicNetworks(machine) : undefined);
    const { serial, base } = this.makeBase(spec.episode);
    const { runner, clock } = this.deps;
    const box = await openSandbox({
      ...how,
      provider: this.name,
      spec,
      lender,
      base,
      household: this.#household,
      id: `gym-harbor-${spec.owner.run}-${serial}`,
      runner,
      clock,
    }, signal);
    this.#open.add(box);
    const dispose = box[Symbol.asyncDispose].bind(box);
    box[Symbol.asyncDispose] = () => dispose().finally(() => this.#open.delete(box));
    return box;
  }

  /** An empty folder that a sweep finds once it holds a state file. */
  makeBase(name: string): { serial: string; base: string } {
    mkdirSync(join(this.folder, BOXES), { recursive: true, mode: 0o700 });
    const serial = `${name}-${this.serial()}`.replace(/[^A-Za-z0-9_.-]/g, "_");
    const base = join(this.folder, BOXES, serial);
    mkdirSync(base, { mode: 0o700 });
    return { serial, base };
  }

  /** Takes such a folder out of the way. */
  discardBase(base: string): Promise<void> {
    return this.#discard(base);
  }

  /** Where the proxy of public sandboxes listens. */
  async proxySocket(): Promise<string> {
    await this.#publicNetworks(await this.machine());
    return this.#proxy!.socket;
  }

  #publicNetworks(machine: Machine): Promise<Networks> {
    return this.#shared.get("networks", async () => {
      mkdirSync(this.folder, { recursive: true, mode: 0o700 });
      this.#proxy = await startProxy(join(this.folder, "proxy.sock"), this.deps.env);
      this.#networks = new Networks(machine, { runner: this.deps.runner, socket: this.#proxy.socket });
      return this.#networks;
    }) as Promise<Networks>;
  }

  /**
   * A sandbox's folder is renamed away at once and removed while others work: a busy disk takes a hundred milliseconds
   * for what costs the CPU five. Only a long backlog is waited for, and what is left when the provider ends.
   */
  async #discard(base: string): Promise<void> {
    const trash = join(this.folder, `trash-${this.serial()}`);
    rmSync(join(base, STATE), { force: true });
    try {
      renameSync(base, trash);
    } catch {
      return; // swept meanwhile
    }
    const machine = await this.machine();
    this.#discarded++;
    this.#discarding = this.#discarding.then(() => removeBase(trash, machine, this.deps.runner)).catch(() => {})
      .finally(() => this.#discarded--);
    if (this.#discarded > MOST_DISCARDED) await this.#discarding;
  }

  list(filter: OwnerFilter): Leftover[] {
    return this.#leftovers(filter).map(({ leftover }) => leftover);
  }

  #leftovers(filter: OwnerFilter): { leftover: Leftover; base: string; state: SandboxState }[] {
    const found: { leftover: Leftover; base: string; state: SandboxState }[] = [];
    const runs = scratchFolders(scratchRoot(this.deps.env)).map(({ folder }) => folder);
    for (const base of [...new Set([...runs, this.deps.scratch])].flatMap((run) => boxesIn(run, this.name))) {
      const state = stateOf(base);
      if (state === undefined || !concerns(filter, state.owner)) continue;
      const ageMs = this.deps.clock.now().getTime() - Date.parse(state.created);
      if (filter.olderThanMs !== undefined && ageMs < filter.olderThanMs) continue;
      const { id, owner } = state;
      found.push({ base, state, leftover: { id, provider: this.name, owner, alive: isAlive(owner), ageMs } });
    }
    return found;
  }

  async sweep(filter: OwnerFilter): Promise<SweepReport> {
    const report: SweepReport = { removed: [], failed: [] };
    for (const { leftover, base, state } of this.#leftovers(filter)) {
      if (filter.evenAlive !== true && leftover.alive !== false) continue;
      await endState(state, this.deps.clock);
      await removeBase(base, await this.machine(), this.deps.runner);
      await removeGroups(state.groups, this.deps.clock);
      if (existsSync(base)) report.failed.push({ id: state.id, reason: `${base} could not be removed` });
      else report.removed.push(state.id);
    }
    if (filter.olderThanMs !== undefined) return report;
    sweepGroups(filter.run);
    for (const { folder, owner } of scratchFolders(scratchRoot(this.deps.env))) {
      if (
        !concerns(filter, owner) || isAlive(owner) !== false ||
        boxesIn(folder).some((base) => stateOf(base) !== undefined)
      ) continue;
      try {
        removeScratch(folder);
      } catch (error) {
        report.failed.push({ id: folder, reason: messageOf(error) });
      }
    }
    return report;
  }

  sweepNow(run: string): void {
    for (const { base, state } of this.#leftovers({ run })) {
      killState(state);
      removeGroupsNow(state.groups);
      removeBaseNow(base);
    }
    for (const box of this.#open) if (box.owner.run === run) box.closeNow();
    if ([...this.#open].every((box) => box.owner.run === run)) this.#closeNetworks();
  }

  /** Ends the relays and the proxy, and waits for what is being removed; sandboxes are closed by who opened them. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#closeNetworks();
    await this.#discarding; // two who remove the same tree get in each other's way
  }

  #closeNetworks(): void {
    this.#networks?.close();
    this.#proxy?.close();
  }
}
