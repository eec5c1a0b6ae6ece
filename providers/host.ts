/**
 * `host`: a sandbox without an engine and without an image. Each one is a throw-away copy-on-write view of this
 * machine's own root in its own user, mount, pid, ipc, uts and network namespaces, made with util-linux, as root and as
 * a plain user. It guards against accidents and ordinary agents, not against exploits of the kernel, which it shares.
 *
 * Options (`sandbox.host.…`): `network=host` shares this machine's network; `run=all|no-install|skip` says which RUN
 * lines of a Dockerfile are run (default `no-install`); `storage=disk|memory|read-only` fixes where writes go, which is
 * otherwise found out by trying; `pids_limit=N` bounds the processes of one sandbox (4096).
 */
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import type { Emit } from "../lib/events.ts";
import { HarborError } from "../lib/errors.ts";
import { Shared } from "../lib/runtime/pool.ts";
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
import { scratchRoot } from "../lib/sandbox/scratch.ts";
import { applySteps } from "./_build_steps.ts";
import { applyRequest, type HostImage, prepareImage } from "./_host_dockerfile.ts";
import { hostRootfs, makeSkeleton } from "./_host_layout.ts";
import { lookAtView } from "./_host_look.ts";
import { findPrivate, hiddenBelow, homesOf, makeMask, type Mask } from "./_host_private.ts";
import type { HostView } from "./_host_view.ts";
import { Boxes } from "./_namespace_boxes.ts";
import { diagnoseNamespaces, storageNotes, trialSpec } from "./_namespace_diagnose.ts";
import { MAX_PROCESSES } from "./_namespace_limits.ts";
import { type Machine, oneId, refuseOtherUsers } from "./_namespace_machine.ts";
import type { Layer, Storage } from "./_namespace_mounts.ts";
import { optionReader } from "./_namespace_options.ts";
import type { NamespaceSandbox } from "./_namespace_sandbox.ts";
import { Ways } from "./_namespace_way.ts";

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
  const read = optionReader("host", options, ["network", "run", "storage", "pids_limit"]);
  return {
    network: read.one("network", ["host", "relay"] as const) === "host" ? "host" : undefined,
    run: read.one("run", RUN_MODES) ?? "no-install",
    storage: read.one("storage", STORAGES),
    pids_limit: read.count("pids_limit") ?? MAX_PROCESSES,
  };
}

export class HostProvider implements SandboxProvider {
  readonly name = "host";
  readonly #options: HostOptions;
  readonly #boxes: Boxes;
  readonly #ways: Ways;
  readonly #shared = new Shared<unknown>();
  #private: string[] | undefined;
  #view: { shown: HostView; skeleton: string } | undefined;

  constructor(private readonly deps: ProviderDeps) {
    this.#options = readOptions(deps.options);
    this.#boxes = new Boxes("host", deps);
    this.#ways = new Ways(STORAGES, this.#options.storage);
  }

  diagnose(signal: AbortSignal, depth: "quick" | "thorough" = "thorough"): Promise<Diagnosis> {
    return diagnoseNamespaces(this.deps.runner, signal, depth, {
      name: "host",
      machine: () => this.#boxes.machine(),
      open: async (network, setup) => {
        const need = { taskId: "doctor", source: { kind: "none" as const }, network, limits: {}, users: [] };
        return await this.open(trialSpec(await this.prepare(need, signal, () => {}), network, setup), signal);
      },
      notes: () => storageNotes(this.#ways.current.storage),
      capabilities: { build: false },
    });
  }

  async prepare(need: ImageNeed, signal: AbortSignal, emit: Emit): Promise<PreparedImage> {
    const machine = await this.#boxes.machine();
    refuseOtherUsers(machine, need.taskId, need.users, this.deps.env);
    const image = await prepareImage(need, {
      mode: this.#options.run,
      shared: this.#shared,
      clock: this.deps.clock,
      emit,
      oneId: oneId(machine, this.deps.env),
      open: (spec) => this.#openBox(spec, signal, []),
    }, signal);
    refuseOtherUsers(machine, need.taskId, [image.user], this.deps.env);
    if (this.#networkOf(need.network) === "public") await this.#boxes.warm();
    return image;
  }

  async open(spec: SandboxSpec, signal: AbortSignal): Promise<Sandbox> {
    const { layers, steps, deadlineMs } = spec.image.handle as HostImage;
    const box = await this.#openBox(spec, signal, layers);
    try {
      await applySteps(box, steps, applyRequest(spec.episode, deadlineMs, this.deps.clock), signal);
      return box;
    } catch (error) {
      await box[Symbol.asyncDispose]();
      throw error;
    }
  }

  async #openBox(spec: SandboxSpec, signal: AbortSignal, layers: Layer[]): Promise<NamespaceSandbox> {
    const machine = await this.#boxes.machine();
    const network = this.#networkOf(spec.network);
    for (;;) {
      const way = this.#ways.current;
      const view = (this.#view ??= this.#look(machine));
      const mask = await this.#mask(machine, view.shown, spec.hide ?? []);
      mkdirSync(this.#boxes.folder, { recursive: true, mode: 0o700 });
      if (!existsSync(view.skeleton)) makeSkeleton(view.skeleton, view.shown);
      const rootfs = hostRootfs({
        machine,
        view: view.shown,
        skeleton: view.skeleton,
        mask,
        layers,
        way,
        network,
      });
      try {
        const maxProcesses = this.#options.pids_limit;
        const box = await this.#boxes.open(spec, { machine, rootfs, network, maxProcesses }, signal);
        this.#ways.prove();
        return box;
      } catch (error) {
        if (!this.#lookAgain(machine, view, error) && !this.#ways.tryAnother(way, error)) throw error;
      }
    }
  }

  #look(machine: Machine): { shown: HostView; skeleton: string } {
    return {
      shown: lookAtView(machine.mode),
      skeleton: join(this.#boxes.folder, `skeleton-${this.#boxes.serial()}`),
    };
  }

  /**
   * A plain user's overlays are refused where somebody mounted something below a shown folder since we looked
   * (takeApart): the view is made anew. Whether it changed.
   */
  #lookAgain(machine: Machine, used: { shown: HostView }, error: unknown): boolean {
    if (machine.mode !== "user" || !(error instanceof HarborError) || error.code !== "sandbox.failed") return false;
    if (!/mount/.test(String(error.details?.stderr ?? ""))) return false;
    if (used !== this.#view) return true; // somebody else looked meanwhile
    const seen = this.#look(machine);
    if (JSON.stringify(seen.shown) === JSON.stringify(used.shown)) return false;
    this.#view = seen;
    return true;
  }

  #networkOf(asked: Network): Network {
    return asked === "public" && this.#options.network === "host" ? "host" : asked;
  }

  #mask(machine: Machine, { folders, network }: HostView, hide: readonly string[]): Promise<Mask> {
    const passwd = existsSync("/etc/passwd") ? readFileSync("/etc/passwd", "latin1") : "";
    const homes = homesOf(passwd, this.deps.env.HOME);
    const named = [...hide, ...homes, this.deps.scratch, scratchRoot(this.deps.env)];
    this.#private ??= findPrivate(process.getuid?.() ?? 0);
    const hidden = [...hiddenBelow(folders, this.#private, named), ...network];
    return this.#shared.get(`mask ${JSON.stringify(hidden)}`, () => {
      const layer = join(this.#boxes.folder, `mask-${this.#boxes.serial()}`);
      return makeMask(layer, folders, hidden, { ownIds: machine.mode === "user", runner: this.deps.runner });
    }) as Promise<Mask>;
  }

  list(filter: OwnerFilter): Promise<Leftover[]> {
    return Promise.resolve(this.#boxes.list(filter));
  }

  sweep(filter: OwnerFilter): Promise<SweepReport> {
    return this.#boxes.sweep(filter);
  }

  sweepNow(run: string): void {
    this.#boxes.sweepNow(run);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#boxes[Symbol.asyncDispose]();
  }
}
