/** Where a sandbox on an image's layers gets the image: our own store under any of its names, else a registry. */
import { HarborError } from "../lib/errors.ts";
import type { Emit } from "../lib/events.ts";
import { parseReference, pinnedTo } from "../lib/images/reference.ts";
import { pullImage } from "../lib/images/pull.ts";
import type { ImageNeed } from "../lib/sandbox/provider.ts";
import type { Registry } from "../lib/registry/registry.ts";
import type { ImageStore, StoredImage } from "../lib/store/store.ts";

export interface FindDeps {
  store: ImageStore | undefined;
  registry: Registry | undefined;
  offline: boolean;
  /** `os/arch`. */
  platform: string;
}

export interface Found {
  /** What a row says: by digest where a registry gave one. */
  reference: string;
  stored: StoredImage;
}

/** Throws "task.unsupported" for a task without an image, "image.failed" for one that cannot be had. */
export async function findImage(need: ImageNeed, deps: FindDeps, signal: AbortSignal, emit: Emit): Promise<Found> {
  const { source } = need;
  if (source.kind === "none") {
    throw new HarborError("task.unsupported", `${need.taskId} has no image, and --sandbox namespace starts from one`, {
      hint: "--sandbox host runs it on this machine's own root",
    });
  }
  const names = source.kind === "dockerfile" ? [source.tag] : [source.reference, ...source.aliases ?? []];
  const [name] = names as [string, ...string[]];
  const here = await inStore(names, deps);
  if (here !== undefined) return { reference: shownName(name, here), stored: here };
  const { store, registry } = deps;
  const why = whyNotPulled(name, deps);
  if (why !== undefined || store === undefined || registry === undefined) {
    throw new HarborError("image.failed", `Image ${name} is not in the image store: ${why}`, {
      hint: isBuilt(name)
        ? "gym-harbor dataset prepare builds it; gym-harbor images import takes it from an archive"
        : `gym-harbor images pull ${name} where there is a network, or gym-harbor images import ARCHIVE`,
      details: { reference: name },
    });
  }
  const pulled = await pullImage(name, { registry, store, platform: deps.platform }, signal, emit);
  return { reference: shownName(name, pulled), stored: pulled };
}

async function inStore(names: readonly string[], { store, platform }: FindDeps): Promise<StoredImage | undefined> {
  for (const name of names) {
    const found = await store?.find(name, platform);
    if (found !== undefined) return found;
  }
  return undefined;
}

const isBuilt = (name: string): boolean => /^hb__[0-9a-f]+$/.test(name);

/** Why nothing is asked of a registry; undefined when it may be. Pure. */
export function whyNotPulled(name: string, deps: FindDeps): string | undefined {
  if (deps.store === undefined || deps.registry === undefined) return "there is no store to pull it into";
  if (isBuilt(name)) return "it is built on this machine, and no registry has it";
  if (deps.offline) return "--offline asks no registry";
  if (deps.store.readOnly) return `${deps.store.folder} cannot be written, so it is not pulled`;
  return undefined;
}

/** By digest where a registry gave the image one under this repository, so that a row says exactly what ran. Pure. */
export function shownName(name: string, { names }: Pick<StoredImage, "names">): string {
  if (isBuilt(name) || name.includes("@")) return name;
  const asked = parseReference(name);
  for (const other of names.filter((one) => one.includes("@sha256:"))) {
    const pin = parseReference(other);
    if (pin.host === asked.host && pin.repository === asked.repository) return pinnedTo(pin, pin.digest!);
  }
  return name;
}
