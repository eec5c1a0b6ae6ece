/**
 * `host`: a sandbox without an engine and without an image. Each one is a throw-away copy-on-write view of this
 * machine's own root in its own user, mount, pid, ipc, uts and network namespaces, made with util-linux, as root and as
 * a plain user. It guards against accidents and ordinary agents, not against exploits of the kernel, which it shares.
 *
 * Options (`sandbox.host.…`): `network=host` shares this machine's network; `run=all|no-install|skip` says which RUN
 * lines of a Dockerfile are run (default `no-install`); `storage=disk|memory|read-only` fixes where writes go, which is
 * otherwise found out by trying; `pids_limit=N` bounds the processes of one sandbox (4096).
 */
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import type { Emit } from "../lib/events.ts";
import { HarborError, messageOf } from "../lib/errors.ts";
import { Shared } from "../lib/runtime/pool.ts";
import { concerns, isAlive, newRunId } from "../lib/sandbox/owner.ts";
import type {
  Diagnosis,
  ImageNeed,
  Leftover,
  Network,
  OwnerFilter,
  PreparedImage,
  ProviderDeps,
  Sandbox,
  SandboxProvider,
  SandboxSpec,
  SweepReport,
} from "../lib/sandbox/provider.ts";
import { removeScratch, scratchFolders, scratchRoot } from "../lib/sandbox/scratch.ts";
import { diagnoseHost } from "./_host_diagnose.ts";
import { applySteps, type HostImage, prepareImage } from "./_host_dockerfile.ts";
import { MAX_PROCESSES, removeGroups, removeGroupsNow, sweepGroups } from "./_host_limits.ts";
import { lookAtMachine, lookAtView, type Machine } from "./_host_machine.ts";
import { Networks } from "./_host_networks.ts";
import { findPrivate, hiddenBelow, homesOf, makeMask, type Mask } from "./_host_private.ts";
import { type Proxy, startProxy } from "./_host_proxy.ts";
import { type Folders, makeSkeleton, type Way } from "./_host_layout.ts";
import { openSandbox } from "./_host_open.ts";
import type { HostSandbox } from "./_host_sandbox.ts";
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
} from "./_host_state.ts";
import type { Layer, Storage } from "./_namespace_mounts.ts";

/** Folders of ended sandboxes that may wait for their removal. */
const MOST_DISCARDED = 32;

const STORAGES: Storage[] = ["disk", "memory", "read-only"];
const RUN_MODES = ["all", "no-install", "skip"] as const;
export type RunMode = typeof RUN_MODES[number];

interface HostOptions {
  network: "host" | undefined;
  run: RunMode;
  storage: Storage | undefined;
  pids_limit: number;
}

/** Throws "usage" for an option or value that there is not. */
export function readOptions(options: Readonly<Record<string, unknown>>): HostOptions {
  const one = <T extends string>(name: string, values: readonly T[]): T | undefined => {
    const value = options[name];
    if (value === undefined || values.includes(value as T)) return value as T | undefined;
    throw new HarborError("usage", `sandbox.host.${name} is ${JSON.stringify(value)}, must be ${values.join(" or ")}`);
  };
  const known = ["network", "run", "storage", "pids_limit"];
  const unknown = Object.keys(options).find((name) => !known.includes(name));
  if (unknown !== undefined) {
    throw new HarborError("usage", `unknown option sandbox.host.${unknown}`, { hint: `there are ${known.join(", ")}` });
  }
  const count = (name: string): number | undefined => {
    const value = options[name];
    if (value === undefined || (typeof value === "number" && Number.isInteger(value) && value > 0)) return value;
    throw new HarborError("usage", `sandbox.host.${name} is ${JSON.stringify(value)}, must be a whole number above 0`);
  };
  const network = one("network", ["host", "relay"] as const);
  return {
    network: network === "host" ? "host" : undefined,
    run: one("run", RUN_MODES) ?? "no-install",
    storage: one("storage", STORAGES),
    pids_limit: count("pids_limit") ?? MAX_PROCESSES,
  };
}

export class HostProvider implements SandboxProvider {
  readonly name = "host";
  readonly #options: HostOptions;
  /** Where this provider keeps its layers, sockets and sandboxes. */
  readonly #folder: string;
  readonly #shared = new Shared<unknown>();
  readonly #open = new Set<HostSandbox>();
  readonly #folders: Folders;
  #way: Way;
  #wayProven = false;
  #next = 0;
  #private: string[] | undefined;
  #known: Machine | undefined;
  #networks: Networks | undefined;
  #proxy: Proxy | undefined;

  constructor(private readonly deps: ProviderDeps) {
    this.#options = readOptions(deps.options);
    this.#folder = join(deps.scratch, `host-${newRunId()}`);
    this.#folders = {
      skeleton: join(this.#folder, "skeleton"),
      controls: [],
      makeControl: () => {
        const folder = join(this.#folder, `control-${++this.#next}`);
        mkdirSync(folder, { mode: 0o700 });
        return folder;
      },
      discard: (base) => this.#discard(base),
    };
    this.#way = { storage: this.#options.storage ?? "disk", sysfs: true };
  }

  diagnose(signal: AbortSignal, depth: "quick" | "thorough" = "thorough"): Promise<Diagnosis> {
    return diagnoseHost(this.deps, signal, depth, {
      machine: () => this.#machine(),
      provider: this,
      storage: () => this.#way.storage,
    });
  }

  async prepare(need: ImageNeed, signal: AbortSignal, emit: Emit): Promise<PreparedImage> {
    const machine = await this.#machine();
    this.#refuseOtherUsers(machine, need, need.users);
    const image = await prepareImage(need, {
      mode: this.#options.run,
      shared: this.#shared,
      clock: this.deps.clock,
      emit,
      oneId: this.#oneId(machine),
      open: (spec) => this.#openBox(spec, signal, []),
    }, signal);
    this.#refuseOtherUsers(machine, need, [image.user]);
    if (this.#networkOf(need.network) === "public") (await this.#publicNetworks(machine)).warm();
    return image;
  }

  #refuseOtherUsers(machine: Machine, need: ImageNeed, users: readonly (string | undefined)[]): void {
    const hint = this.#oneId(machine);
    const other = users.find((user) => user !== undefined && !/^(|root|0)(:(root|0))?$/.test(user));
    if (hint === undefined || other === undefined) return;
    const message = `${need.taskId} runs commands as ${other}, and only one id can be had here (${machine.idsReason})`;
    throw new HarborError("task.unsupported", message, { hint });
  }

  /** What is missing where commands can run as root alone; undefined where other users can be had. */
  #oneId(machine: Machine): string | undefined {
    if (machine.ids !== "own") return undefined;
    const user = this.deps.env.USER ?? process.getuid?.() ?? "";
    return `${machine.idsReason}; an administrator mends it with: apt-get install uidmap; ` +
      `usermod --add-subuids 100000-165535 --add-subgids 100000-165535 ${user}`;
  }

  async open(spec: SandboxSpec, signal: AbortSignal): Promise<Sandbox> {
    const { layers, steps, deadlineMs } = spec.image.handle as HostImage;
    const box = await this.#openBox(spec, signal, layers);
    try {
      await applySteps(box, steps, spec.episode, deadlineMs, this.deps.clock, signal);
      return box;
    } catch (error) {
      await box[Symbol.asyncDispose]();
      throw error;
    }
  }

  async #openBox(spec: SandboxSpec, signal: AbortSignal, layers: Layer[]): Promise<HostSandbox> {
    let machine = await this.#machine();
    if (/[,:\\"']/.test(this.#folder)) {
      throw new HarborError(
        "machine.lacks",
        `Overlays cannot lie below ${this.#folder}: its name holds , : \\ or a quote`,
        {
          hint: "set TMPDIR to a folder of a plainer name",
        },
      );
    }
    const network = this.#networkOf(spec.network);
    if (network === "no-network" && machine.loopback === undefined) {
      throw new HarborError("task.unsupported", "No program here can bring up loopback in a network of its own", {
        hint: "install iproute2",
      });
    }
    const networks = network === "public" ? await this.#publicNetworks(machine) : undefined;
    for (;;) {
      const way = this.#way;
      const mask = await this.#mask(machine, spec.hide ?? []);
      const folder = join(this.#folder, BOXES);
      mkdirSync(folder, { recursive: true, mode: 0o700 });
      if (!existsSync(this.#folders.skeleton)) makeSkeleton(this.#folders.skeleton, machine.view);
      const serial = `${spec.episode}-${++this.#next}`.replace(/[^A-Za-z0-9_.-]/g, "_");
      const base = join(folder, serial);
      mkdirSync(base, { mode: 0o700 });
      try {
        const box = await openSandbox({
          spec,
          machine,
          mask,
          layers,
          way,
          network,
          networks,
          base,
          folders: this.#folders,
          id: `gym-harbor-${spec.owner.run}-${serial}`,
          maxProcesses: this.#options.pids_limit,
          runner: this.deps.runner,
          clock: this.deps.clock,
        }, signal);
        this.#wayProven = true;
        this.#open.add(box);
        const dispose = box[Symbol.asyncDispose].bind(box);
        box[Symbol.asyncDispose] = () => dispose().finally(() => this.#open.delete(box));
        return box;
      } catch (error) {
        const changed = this.#lookAgain(machine, error);
        if (changed === undefined && !this.#tryAnotherWay(way, error)) throw error;
        machine = changed ?? machine;
      }
    }
  }

  /**
   * A plain user's overlays are refused where somebody mounted something below a shown folder since we looked
   * (takeApart): the view is made anew, and undefined when that is not it.
   */
  #lookAgain(machine: Machine, error: unknown): Machine | undefined {
    if (machine.mode !== "user" || !(error instanceof HarborError) || error.code !== "sandbox.failed") return undefined;
    if (!/mount/.test(String(error.details?.stderr ?? ""))) return undefined;
    if (machine !== this.#known) return this.#known; // somebody else looked meanwhile
    const view = lookAtView(machine.mode);
    if (JSON.stringify(view) === JSON.stringify(machine.view)) return undefined;
    this.#folders.skeleton = join(this.#folder, `skeleton-${++this.#next}`);
    return (this.#known = { ...machine, view });
  }

  /** After a refused mount: what this kernel or disk cannot do is left out from then on, and the row says so. */
  #tryAnotherWay(failed: Way, error: unknown): boolean {
    if (this.#wayProven || !(error instanceof HarborError) || error.code !== "sandbox.failed") return false;
    if (failed !== this.#way) return true; // somebody else found out meanwhile
    const said = String(error.details?.stderr ?? "");
    if (failed.sysfs && /\/root\/sys\b/.test(said)) {
      this.#way = { ...failed, sysfs: false };
      return true;
    }
    const next = STORAGES[STORAGES.indexOf(failed.storage) + 1];
    if (this.#options.storage !== undefined || next === undefined || !/mount/.test(said)) return false;
    this.#way = { ...failed, storage: next };
    return true;
  }

  #discarding: Promise<void> = Promise.resolve();
  #discarded = 0;

  /**
   * A sandbox's folder is renamed away at once and removed while others work: a busy disk takes a hundred milliseconds
   * for what costs the CPU five. Only a long backlog is waited for, and what is left when the provider ends.
   */
  async #discard(base: string): Promise<void> {
    const trash = join(this.#folder, `trash-${++this.#next}`);
    rmSync(join(base, STATE), { force: true });
    try {
      renameSync(base, trash);
    } catch {
      return; // swept meanwhile
    }
    const machine = await this.#machine();
    this.#discarded++;
    this.#discarding = this.#discarding.then(() => removeBase(trash, machine, this.deps.runner)).catch(() => {})
      .finally(() => this.#discarded--);
    if (this.#discarded > MOST_DISCARDED) await this.#discarding;
  }

  #networkOf(asked: Network): Network {
    return asked === "public" && this.#options.network === "host" ? "host" : asked;
  }

  async #machine(): Promise<Machine> {
    if (this.#known !== undefined) return this.#known;
    const looked = await this.#shared.get("machine", () => lookAtMachine(this.deps.runner)) as Machine;
    return (this.#known ??= looked);
  }

  #mask(machine: Machine, hide: readonly string[]): Promise<Mask> {
    const { folders, network } = machine.view;
    const passwd = existsSync("/etc/passwd") ? readFileSync("/etc/passwd", "latin1") : "";
    const homes = homesOf(passwd, this.deps.env.HOME);
    const named = [...hide, ...homes, this.deps.scratch, scratchRoot(this.deps.env)];
    this.#private ??= findPrivate(process.getuid?.() ?? 0);
    const hidden = [...hiddenBelow(folders, this.#private, named), ...network];
    return this.#shared.get(`mask ${JSON.stringify(hidden)}`, () => {
      const layer = join(this.#folder, `mask-${++this.#next}`);
      return makeMask(layer, folders, hidden, { ownIds: machine.mode === "user", runner: this.deps.runner });
    }) as Promise<Mask>;
  }

  #publicNetworks(machine: Machine): Promise<Networks> {
    return this.#shared.get("networks", async () => {
      mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
      this.#proxy = await startProxy(join(this.#folder, "proxy.sock"), this.deps.env);
      this.#networks = new Networks(machine, { runner: this.deps.runner, socket: this.#proxy.socket });
      return this.#networks;
    }) as Promise<Networks>;
  }

  list(filter: OwnerFilter): Promise<Leftover[]> {
    return Promise.resolve(this.#leftovers(filter).map(({ leftover }) => leftover));
  }

  #leftovers(filter: OwnerFilter): { leftover: Leftover; base: string; state: SandboxState }[] {
    const found: { leftover: Leftover; base: string; state: SandboxState }[] = [];
    const runs = scratchFolders(scratchRoot(this.deps.env)).map(({ folder }) => folder);
    for (const base of [...new Set([...runs, this.deps.scratch])].flatMap(boxesIn)) {
      const state = stateOf(base);
      if (state === undefined || !concerns(filter, state.owner)) continue;
      const ageMs = this.deps.clock.now().getTime() - Date.parse(state.created);
      if (filter.olderThanMs !== undefined && ageMs < filter.olderThanMs) continue;
      const { id, owner } = state;
      found.push({ base, state, leftover: { id, provider: "host", owner, alive: isAlive(owner), ageMs } });
    }
    return found;
  }

  async sweep(filter: OwnerFilter): Promise<SweepReport> {
    const report: SweepReport = { removed: [], failed: [] };
    for (const { leftover, base, state } of this.#leftovers(filter)) {
      if (filter.evenAlive !== true && leftover.alive !== false) continue;
      await endState(state, this.deps.clock);
      await removeBase(base, await this.#machine(), this.deps.runner);
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
