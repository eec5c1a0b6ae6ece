/**
 * `namespace`: a sandbox on an image's layers without any engine. The image comes from our own store (or a registry,
 * into it), its layers are unpacked once on this machine, and each sandbox is one overlay of them in user, mount, pid,
 * ipc, uts and network namespaces of its own, made with util-linux, as root and as a plain user. As root inside it has
 * Docker's default capabilities. It guards against accidents and ordinary agents, not against exploits of the kernel,
 * which it shares.
 *
 * Options (`sandbox.namespace.…`): `network=host` shares this machine's network; `storage=disk|memory` fixes where
 * writes go, which is otherwise found out by trying; `pids_limit=N` bounds the processes of one sandbox (4096).
 */
import { existsSync, lstatSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import type { Emit } from "../lib/events.ts";
import { Shared } from "../lib/runtime/pool.ts";
import type { Group, GroupSpec } from "../lib/sandbox/group.ts";
import type {
  Diagnosis,
  ImageNeed,
  Leftover,
  LocalImage,
  Missing,
  Network,
  OwnerFilter,
  PreparedImage,
  ProviderDeps,
  Sandbox,
  SandboxProvider,
  SandboxSpec,
  SweepReport,
} from "../lib/sandbox/provider.ts";
import { thisPlatform } from "../lib/images/config.ts";
import { storeFolder } from "../lib/store/folder.ts";
import type { StoredImage } from "../lib/store/store.ts";
import { unpackFolder } from "../lib/unpack/folder.ts";
import { layerTrees, type Trees } from "../lib/unpack/trees.ts";
import { type Place, placeFacts, placeNotes } from "./_layers_diagnose.ts";
import { findImage, type Found } from "./_layers_find.ts";
import { type LayersImage, localImage, preparedFrom } from "./_layers_image.ts";
import {
  layersRootfs,
  type LayerStack,
  makeLayerSkeleton,
  makeToolsRoot,
  stackLayers,
  treesOf,
} from "./_layers_layout.ts";
import { resolveInTrees } from "./_layers_mounts.ts";
import { type MemberOpening, openGroup } from "./_layers_group.ts";
import { type PackedLayer, packLayer } from "./_layers_pack.ts";
import { noBridge } from "./_namespace_bridge.ts";
import { failUnlessDone } from "./_build_steps.ts";
import { Boxes } from "./_namespace_boxes.ts";
import { diagnoseNamespaces, storageNotes, trialSpec } from "./_namespace_diagnose.ts";
import { MAX_PROCESSES } from "./_namespace_limits.ts";
import {
  lookAtMachine,
  type Machine,
  oneId,
  refuseAddedUsers,
  refuseOtherUsers,
  USER_NAMESPACE,
} from "./_namespace_machine.ts";
import type { Storage } from "./_namespace_mounts.ts";
import { optionReader } from "./_namespace_options.ts";
import type { NamespaceSandbox } from "./_namespace_sandbox.ts";
import { type CarriedFolder, carryTools } from "./_namespace_tools.ts";
import { Ways } from "./_namespace_way.ts";

const STORAGES: Storage[] = ["disk", "memory"];

interface NamespaceOptions {
  network: "host" | undefined;
  storage: Storage | undefined;
  pids_limit: number;
}

/** Throws "usage" for an option or value that there is not. */
export function readOptions(options: Readonly<Record<string, unknown>>): NamespaceOptions {
  const read = optionReader("namespace", options, ["network", "storage", "pids_limit"]);
  return {
    network: read.one("network", ["host", "relay"] as const) === "host" ? "host" : undefined,
    storage: read.one("storage", STORAGES),
    pids_limit: read.count("pids_limit") ?? MAX_PROCESSES,
  };
}

/** The owner map that sandboxes of this user have on this machine. Throws "engine.missing" when it can have none. */
export const ownerMapHere = async (runner: ProviderDeps["runner"]): Promise<string> =>
  (await lookAtMachine(runner)).ownerMap;

/** Unpacks an image for an owner map, once. */
export type UnpackImage = (image: StoredImage, ownerMap: string, signal: AbortSignal) => Promise<Trees>;

export class NamespaceProvider implements SandboxProvider {
  readonly name = "namespace";
  readonly #options: NamespaceOptions;
  readonly #boxes: Boxes;
  readonly #ways: Ways;
  readonly #shared = new Shared<unknown>();
  readonly #unpack: UnpackImage;

  /** `unpack`: instead of lib/unpack; for tests. */
  constructor(private readonly deps: ProviderDeps, unpack?: UnpackImage) {
    this.#options = readOptions(deps.options);
    this.#unpack = unpack ?? ((image, owners, signal) => this.#trees(image, owners, signal));
    this.#boxes = new Boxes("namespace", deps);
    this.#ways = new Ways(STORAGES, this.#options.storage);
  }

  async prepare(need: ImageNeed, signal: AbortSignal, emit: Emit): Promise<PreparedImage> {
    const machine = await this.#boxes.machine();
    refuseOtherUsers(machine, need.taskId, need.users, this.deps.env);
    refuseAddedUsers(machine, need, this.deps.env);
    const { reference, stored } = await this.#find(need, signal, emit);
    const key = `image ${stored.config.digest}`;
    const stack = await (this.#shared.get(key, () => this.#stack(stored, machine, signal)) as Promise<
      { stack: LayerStack; notes: string[] }
    >);
    const image = preparedFrom(reference, stored, stack.stack, stack.notes);
    refuseOtherUsers(machine, need.taskId, [image.user], this.deps.env);
    if (this.#networkOf(need.network) === "public") await this.#boxes.warm();
    return image;
  }

  #find(need: ImageNeed, signal: AbortSignal, emit: Emit): Promise<Found> {
    const { source } = need;
    const key = source.kind === "named" ? source.reference : source.kind === "dockerfile" ? source.tag : need.taskId;
    const { store, registry, offline = false, platform = thisPlatform() } = this.deps;
    const deps = { store, registry, offline, platform };
    return this.#shared.get(`find ${key}`, () => findImage(need, deps, signal, emit)) as Promise<Found>;
  }

  async #stack(
    stored: StoredImage,
    machine: Machine,
    signal: AbortSignal,
  ): Promise<{ stack: LayerStack; notes: string[] }> {
    const { folders, notes } = await this.#unpack(stored, machine.ownerMap, signal);
    return { stack: ((await this.#imageOf(folders)).handle as LayersImage).stack, notes };
  }

  #trees(image: StoredImage, owners: string, signal: AbortSignal): Promise<Trees> {
    const { clock, runner, store } = this.deps;
    return layerTrees(image, store!, owners, { clock, runner, unpackDir: this.#unpackDir() }, signal);
  }

  #unpackDir(): string {
    const { env, store, unpackDir } = this.deps;
    return unpackFolder(env, unpackDir, store ?? { folder: storeFolder(env), readOnly: false });
  }

  /** Where images lie, packed and unpacked. */
  #places(): Place[] {
    const { env, store } = this.deps;
    return [
      { role: "image store", folder: store?.folder ?? storeFolder(env), moveBy: "name another with --image-store DIR" },
      { role: "unpacked layers", folder: this.#unpackDir(), moveBy: "name a local disk with --unpack-dir DIR" },
    ];
  }

  #skeleton(): Promise<string> {
    return this.#shared.get("skeleton", () => {
      mkdirSync(this.#boxes.folder, { recursive: true, mode: 0o700 });
      const folder = join(this.#boxes.folder, "skeleton");
      if (!existsSync(folder)) makeLayerSkeleton(folder);
      return Promise.resolve(folder);
    }) as Promise<string>;
  }

  #tools(): Promise<CarriedFolder> {
    return this.#shared.get("tools", async () => {
      const tools = await carryTools(join(this.#boxes.folder, "tools"), this.deps.runner);
      makeToolsRoot(tools);
      return tools;
    }) as Promise<CarriedFolder>;
  }

  async open(spec: SandboxSpec, signal: AbortSignal): Promise<Sandbox> {
    return await this.#openBox(spec, [], signal);
  }

  readonly groupLacks = ["cap_add", "gpus", "read_only"] as const;

  async openGroup(spec: GroupSpec, signal: AbortSignal): Promise<Group> {
    const { runner, clock } = this.deps;
    return await openGroup(
      {
        boxes: this.#boxes,
        runner,
        clock,
        open: (member, opening, asking) => this.#openBox(member, [], asking, opening),
        fill: (image, target, volume, asking) => this.#fill(image, target, volume, asking),
      },
      { ...spec, network: this.#networkOf(spec.network) },
      signal,
    );
  }

  async noGroups(): Promise<Missing | undefined> {
    const machine = await this.#boxes.machine();
    const { runner } = this.deps;
    return await (this.#shared.get("groups", () => noBridge({ runner, machine })) as Promise<Missing | undefined>);
  }

  /** What an image has at a path, copied into a folder of this machine with owners and all. */
  async #fill(image: PreparedImage, target: string, volume: string, signal: AbortSignal): Promise<void> {
    const { stack } = image.handle as LayersImage;
    const path = resolveInTrees(treesOf(stack), target);
    if (!treesOf(stack).some((tree) => isFolderAt(join(tree, path)))) return;
    const mounts = [{ kind: "bind" as const, source: volume, target: VOLUME, readOnly: false }];
    const member = { hostname: "gym-harbor", hosts: [], mounts };
    const spec = { ...trialSpec(image, "no-network", ":"), episode: "volume", env: {}, workdir: "/", user: "root" };
    await using box = await this.#openBox(spec, [], signal, { member });
    const done = await box.tool("cp", ["-a", "--", `${path}/.`, VOLUME], FILL_MS, signal);
    failUnlessDone(done, `Cannot fill a volume from ${image.reference}:${target}`);
  }

  /** An image by name with its trees, topmost first, for a build on it. Throws "image.failed". */
  async base(reference: string, signal: AbortSignal, emit: Emit): Promise<{ stored: StoredImage; trees: string[] }> {
    const source = { kind: "named", reference } as const;
    const need: ImageNeed = { taskId: reference, source, network: "public", limits: {}, users: [] };
    const { stored } = await this.#find(need, signal, emit);
    const machine = await this.#boxes.machine();
    return { stored, trees: (await this.#unpack(stored, machine.ownerMap, signal)).folders };
  }

  /** What helps against failures that only one id brings; undefined where there are more. */
  async oneId(): Promise<string | undefined> {
    return oneId(await this.#boxes.machine(), this.deps.env);
  }

  /** A sandbox on these trees, topmost first, in which others are seen below FROM. */
  async openToBuild(
    trees: readonly string[],
    others: readonly (readonly string[])[],
    { ttlMs, network }: { ttlMs: number; network: Network },
    signal: AbortSignal,
  ): Promise<NamespaceSandbox> {
    const [image, ...seen] = await Promise.all([trees, ...others].map((one) => this.#imageOf(one)));
    const spec = { ...trialSpec(image!, network, ":"), episode: "build", ttlMs, readyTimeoutMs: 60_000 };
    return await this.#openBox(spec, seen.map(({ handle }) => (handle as LayersImage).stack), signal);
  }

  /** What a build wrote as a layer in the file `to`. */
  async pack(upper: string, trees: readonly string[], to: string, signal: AbortSignal): Promise<PackedLayer> {
    const { ids } = await this.#boxes.machine();
    const { stack } = (await this.#imageOf(trees)).handle as LayersImage;
    const inside = ids === "all" ? [] : ["unshare", ...USER_NAMESPACE[ids]];
    return await packLayer(upper, to, { runner: this.deps.runner, inside, etcMode: stack.etcMode }, signal);
  }

  async #openBox(
    spec: SandboxSpec,
    others: readonly LayerStack[],
    signal: AbortSignal,
    { member, ...opening }: Partial<MemberOpening> = {},
  ): Promise<NamespaceSandbox> {
    const { stack } = spec.image.handle as LayersImage;
    const machine = await this.#boxes.machine();
    const network = this.#networkOf(spec.network);
    const [skeleton, tools] = await Promise.all([this.#skeleton(), this.#tools()]);
    for (;;) {
      const way = this.#ways.current;
      const rootfs = layersRootfs({ machine, stack, skeleton, tools, way, network, others, member });
      try {
        const maxProcesses = this.#options.pids_limit;
        const box = await this.#boxes.open(spec, { machine, rootfs, network, maxProcesses, ...opening }, signal);
        this.#ways.prove();
        return box;
      } catch (error) {
        if (!this.#ways.tryAnother(way, error)) throw error;
      }
    }
  }

  #networkOf(asked: Network): Network {
    return asked === "public" && this.#options.network === "host" ? "host" : asked;
  }

  async diagnose(signal: AbortSignal, depth: "quick" | "thorough" = "thorough"): Promise<Diagnosis> {
    const found = await diagnoseNamespaces(this.deps.runner, signal, depth, {
      name: "namespace",
      machine: () => this.#boxes.machine(),
      open: async (network, setup) =>
        await this.#openBox(trialSpec(await this.#imageOf([]), network, setup), [], signal),
      notes: () => [...storageNotes(this.#ways.current.storage), ...placeNotes(this.#places())],
      capabilities: { build: true },
      facts: () => placeFacts(this.#places()),
    });
    if (depth === "quick" || found.capabilities === null) return found;
    const lacks = await this.noGroups();
    const missing = [...(lacks === undefined ? [] : [lacks]), ...found.missing];
    return { ...found, missing, capabilities: { ...found.capabilities, groups: lacks === undefined } };
  }

  /** An image that nothing is known of but its trees; of none it has nothing but what every sandbox has. */
  async #imageOf(trees: readonly string[]): Promise<PreparedImage> {
    const stack = await (this.#shared.get(`stack ${trees.join("\n")}`, async () => {
      const skeleton = await this.#skeleton();
      return stackLayers(join(this.#boxes.folder, `image-${this.#boxes.serial()}`), skeleton, trees);
    }) as Promise<LayerStack>);
    return {
      reference: "none",
      workdir: "/",
      env: {},
      user: "",
      entrypoint: [],
      notes: [],
      handle: { stack, configDigest: "" } satisfies LayersImage,
    };
  }

  async local(reference: string): Promise<LocalImage | undefined> {
    const { store, platform = thisPlatform() } = this.deps;
    const found = await store?.find(reference, platform);
    return found && localImage(found);
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

/** Where a volume is seen while it is filled, and how long that may take. */
const VOLUME = "/.gym-harbor-volume";
const FILL_MS = 600_000;

const isFolderAt = (path: string): boolean => lstatSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
