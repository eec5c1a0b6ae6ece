/**
 * The layers of an image as folders on this machine, each unpacked once, by one process, for one owner map. Whatever
 * ends an unpacking, a tree is there whole or not at all: it is made under another name, with its marker, and renamed.
 *
 * A layer's tree serves every image that has the layer. One with whiteouts depends on what lies below it, so its tree
 * serves images with the same layers below. Where the disk cannot hold whiteouts the image becomes one flat tree.
 */
import { chmodSync, chownSync, existsSync, mkdirSync, readdirSync, renameSync, utimesSync } from "node:fs";
import { createHash } from "node:crypto";
import { join } from "node:path";
import { writeAtomic } from "../files/atomic.ts";
import { lockFile } from "../files/lock.ts";
import { errno, HarborError, isDiskFull } from "../errors.ts";
import { reasonOf } from "../files/reason.ts";
import type { Clock } from "../runtime/clock.ts";
import type { Runner } from "../runtime/runner.ts";
import { removeWhole } from "../sandbox/scratch.ts";
import { Leases } from "../store/leases.ts";
import type { ImageStore, StoredImage } from "../store/store.ts";
import { makePrivate } from "./folder.ts";
import type { LowerTree } from "./hidden.ts";
import type { LayerBlob, Unpacked } from "./layer.ts";
import { FILES, MARKER, type Marker, markerOf, NEW_PREFIX, readMarker, USE_LOCK } from "./marker.ts";
import { type OwnerMap, ownerMapText, parseOwnerMap } from "./owners.ts";
import { unpackWhereNeeded } from "./worker.ts";

export interface TreesDeps {
  /** Absolute (unpackFolder()). */
  unpackDir: string;
  clock: Clock;
  runner: Runner;
}

export interface Trees {
  /** Absolute, topmost first; layers without content are left out. They stay while this process lives. */
  folders: string[];
  /** What is not as in the image. */
  notes: string[];
}

/** An image's layers as trees of one owner map (`single:<uid>`, `range:<start>`, `shift:<start>`). Throws like unpackLayer(). */
export async function layerTrees(
  image: Pick<StoredImage, "layers">,
  store: Pick<ImageStore, "blobPath" | "readOnly" | "folder">,
  owners: OwnerMap | string,
  deps: TreesDeps,
  signal: AbortSignal,
): Promise<Trees> {
  const map = typeof owners === "string" ? parseOwnerMap(owners) : owners;
  const place = new TreePlace(map, deps);
  const stack = stackOf(image.layers, store);
  await place.use(stack);
  const { trees, notes } = await place.make(stack, signal);
  // An overlay refuses one folder twice. The upper one shows all that the lower one has.
  const topmostFirst = [...new Map(trees.toReversed().map((tree) => [tree.folder, tree])).values()];
  const filled = topmostFirst.filter(({ marker }) => marker.entries > 0);
  const used = filled.length > 0 ? filled : topmostFirst.slice(0, 1);
  return { folders: used.map(({ folder }) => folder), notes: [...notes, ...notesOf(used)] };
}

interface StackedLayer {
  blob: LayerBlob;
  chainId: string;
  /** Names of its tree where it hides nothing of others, where it does, and of the flat tree that ends with it. */
  alone: string;
  above: string;
  flat: string;
}

function stackOf(
  layers: StoredImage["layers"],
  store: Pick<ImageStore, "blobPath" | "readOnly" | "folder">,
): StackedLayer[] {
  let chainId = "";
  return layers.map(({ digest, diffId, size }) => {
    chainId = chainId === "" ? diffId : sha256(`${chainId} ${diffId}`);
    const path = store.blobPath(digest);
    // Over our own store may lie others (a bundle), of which nothing is ever removed.
    const blob = { digest, diffId, size, path, readOnly: store.readOnly || !path.startsWith(`${store.folder}/`) };
    return {
      blob,
      chainId,
      alone: nameOf("layer", diffId),
      above: nameOf("chain", chainId),
      flat: nameOf("flat", chainId),
    };
  });
}

const sha256 = (text: string): string => `sha256:${createHash("sha256").update(text).digest("hex")}`;
/** Short: paths of many layers stand in one mount option. The number is that of Marker: another version looks elsewhere. */
const nameOf = (kind: string, id: string): string =>
  sha256(`1 ${kind} ${id}`).slice("sha256:".length, "sha256:".length + 24);

interface Tree extends LowerTree {
  marker: Marker;
}

/** Trees of one owner map. */
class TreePlace {
  readonly folder: string;
  readonly #map: string;

  constructor(owners: OwnerMap, private readonly deps: TreesDeps) {
    this.#map = ownerMapText(owners);
    const shifted = owners.kind === "shift" && owners.start > 0;
    makePrivate(deps.unpackDir, shifted ? 0o711 : 0o700);
    this.folder = join(deps.unpackDir, this.#map.replace(":", "-"));
    if (!shifted) makePrivate(this.folder);
    else {
      mkdirSync(this.folder, { recursive: true, mode: 0o700 });
      chownSync(this.folder, owners.start, owners.start);
      chmodSync(deps.unpackDir, 0o711); // the map's root is another user, who must get through
    }
  }

  /** No clean-up takes away what is there of these from now on. */
  async use(stack: readonly StackedLayer[]): Promise<void> {
    const { clock } = this.deps;
    using _lock = await lockFile(join(this.folder, USE_LOCK), { clock, waitMs: USE_WAIT_MS });
    leasesOf(this.folder, clock).hold(stack.flatMap(({ alone, above, flat }) => [alone, above, flat]));
    for (const { alone, above, flat } of stack) for (const name of [alone, above, flat]) this.#touch(name);
  }

  async make(stack: readonly StackedLayer[], signal: AbortSignal): Promise<{ trees: Tree[]; notes: string[] }> {
    const top = stack.at(-1);
    if (top === undefined) return { trees: [], notes: [] };
    const trees: Tree[] = [];
    try {
      for (const layer of stack) {
        const known = this.#find(layer.alone) ?? this.#find(layer.above);
        if (known === undefined && trees.length === 0) {
          const flat = this.#find(top.flat);
          if (flat !== undefined) return { trees: [flat], notes: [FLAT_NOTE] };
        }
        trees.push(known ?? await this.#unpack(layer, trees.toReversed(), signal));
      }
      return { trees, notes: [] };
    } catch (error) {
      if (!(error instanceof HarborError) || error.code !== "machine.lacks" || isDiskFull(error)) throw error;
      return { trees: [await this.#unpackFlat(stack, signal)], notes: [FLAT_NOTE] };
    }
  }

  #unpack(layer: StackedLayer, below: Tree[], signal: AbortSignal): Promise<Tree> {
    const { blob, chainId, alone, above } = layer;
    const request = { layers: [blob], flat: false, below: below.map(({ folder, opaque }) => ({ folder, opaque })) };
    const find = () => this.#find(alone) ?? this.#find(above);
    return this.#once(alone, find, request, ({ hides }) => hides ? above : alone, {
      kind: "layer",
      diff_id: blob.diffId,
      chain_id: chainId,
    }, signal);
  }

  #unpackFlat(stack: readonly StackedLayer[], signal: AbortSignal): Promise<Tree> {
    const { blob, chainId, flat } = stack.at(-1)!;
    const request = { layers: stack.map((layer) => layer.blob), flat: true, below: [] };
    return this.#once(flat, () => this.#find(flat), request, () => flat, {
      kind: "flat",
      diff_id: blob.diffId,
      chain_id: chainId,
    }, signal);
  }

  /** Makes a tree unless `find` has it, while nobody else does. */
  async #once(
    lock: string,
    find: () => Tree | undefined,
    request: { layers: LayerBlob[]; flat: boolean; below: LowerTree[] },
    nameFor: (made: Unpacked) => string,
    identity: Pick<Marker, "kind" | "diff_id" | "chain_id">,
    signal: AbortSignal,
  ): Promise<Tree> {
    const { clock, runner } = this.deps;
    using held = await lockFile(join(this.folder, `${lock}.lock`), { clock, waitMs: UNPACK_WAIT_MS, signal });
    const known = find();
    if (known !== undefined) return known;
    this.#removeLeftovers(lock);
    const temp = join(this.folder, `${NEW_PREFIX}${lock}-${crypto.randomUUID().slice(0, 8)}`);
    try {
      makeOpen(temp);
      makeOpen(join(temp, FILES));
      const while_ = AbortSignal.any([signal, held.lost]);
      const made = await unpackWhereNeeded({ ...request, root: join(temp, FILES), owners: this.#map }, runner, while_);
      await writeAtomic(join(temp, MARKER), JSON.stringify(markerOf(made, this.#map, identity)) + "\n");
      while_.throwIfAborted();
      const place = join(this.folder, nameFor(made));
      if (existsSync(place)) removeWhole(place); // find() did not take it for a tree
      renameSync(temp, place);
      return find()!;
    } catch (cause) {
      if (existsSync(temp)) removeWhole(temp);
      if (signal.aborted) throw cause;
      const hint = "free some space (gym-harbor images gc), or choose another disk with --unpack-dir DIR";
      if (cause instanceof HarborError) {
        if (!isDiskFull(cause)) throw cause;
        throw new HarborError(cause.code, `Cannot unpack into ${this.folder}: ${cause.message}`, { cause, hint });
      }
      if (errno(cause) === undefined) throw cause;
      throw new HarborError("image.failed", `Cannot unpack into ${this.folder}: ${reasonOf(cause)}`, { cause, hint });
    }
  }

  /** What a process that died under this lock left; its lock is ours now. */
  #removeLeftovers(lock: string): void {
    for (const name of readdirSync(this.folder)) {
      if (name.startsWith(`${NEW_PREFIX}${lock}-`)) removeWhole(join(this.folder, name));
    }
  }

  #find(name: string): Tree | undefined {
    const marker = readMarker(join(this.folder, name));
    if (marker === undefined || marker.owner_map !== this.#map) return undefined;
    return { folder: join(this.folder, name, FILES), opaque: marker.opaque, marker };
  }

  /** The time of its marker is when a tree was used last. */
  #touch(name: string): void {
    const now = this.deps.clock.now();
    try {
      utimesSync(join(this.folder, name, MARKER), now, now);
    } catch {
      // not unpacked yet
    }
  }
}

const USE_WAIT_MS = 60_000;
/** A tree is waited for as long as another process works on it. */
const UNPACK_WAIT_MS = 6 * 3_600_000;
const FLAT_NOTE =
  "the disk of the unpacked images cannot hold whiteouts: all layers are one folder, and each image its own copy";

function notesOf(trees: readonly Tree[]): string[] {
  const left = trees.reduce((sum, { marker }) => sum + marker.attributes_left_out, 0);
  return left === 0 ? [] : [`${left} extended attributes of the image's files were left out`];
}

/** Whatever the process's mask: a map's root must get into it. Others are kept out by the folder above. */
function makeOpen(folder: string): void {
  mkdirSync(folder);
  chmodSync(folder, 0o755);
}

const leases = new Map<string, Leases>();

/** One lease file per process and folder, however many images it uses. */
function leasesOf(folder: string, clock: Clock): Leases {
  let found = leases.get(folder);
  if (found === undefined) leases.set(folder, found = new Leases(folder, clock));
  return found;
}
