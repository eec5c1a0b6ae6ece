/**
 * From a registry into our own store. Blobs that are here are not asked for again, a download that broke off is gone on
 * with, and the manifest comes last: whatever ends a pull, the store never names an image that is not whole.
 */
import { attempting, HarborError } from "../errors.ts";
import type { Emit } from "../events.ts";
import { isForeign } from "../registry/manifest.ts";
import type { Descriptor, Registry, RemoteImage } from "../registry/registry.ts";
import { pool } from "../runtime/pool.ts";
import { memorySource } from "../store/sources.ts";
import type { ImageStore, StoredImage } from "../store/store.ts";
import { canonical, parseReference, type Reference } from "./reference.ts";

export interface PullDeps {
  registry: Registry;
  store: ImageStore;
  /** `os/arch[/variant]`. */
  platform: string;
  /** Names for it besides the reference and its pin. */
  names?: string[];
}

/** Layers of one image on their way at the same time; the registry's own limits hold as well. */
const LAYERS_AT_ONCE = 4;
/** Between two events about a pull that goes on. */
const STEP_BYTES = 8 * 2 ** 20;

/**
 * The image under its reference, its pin and `names`. An image that is named by digest and is here is not asked for.
 * Throws HarborError "image.failed" `Cannot pull <reference>: <cause>`, or the signal's reason.
 */
export async function pullImage(
  reference: string | Reference,
  deps: PullDeps,
  signal: AbortSignal,
  emit: Emit,
): Promise<StoredImage> {
  const named = typeof reference === "string" ? parseReference(reference) : reference;
  const { store, platform, names = [] } = deps;
  try {
    const here = named.digest === undefined ? undefined : await store.find(canonical(named), platform);
    if (here !== undefined) return await namedAlso(here, names, store, platform);
    return await pulled(named, deps, signal, emit);
  } catch (thrown) {
    throw attempting(`Cannot pull ${named.written}`, "image.failed", withNextStep(thrown, named.host));
  }
}

/** What broke off or came otherwise than announced says of itself what; here is what to do about it. */
function withNextStep(thrown: unknown, host: string): unknown {
  if (!(thrown instanceof HarborError) || thrown.hint !== undefined) return thrown;
  const { code, message, details } = thrown;
  const hint = `try again: what came whole is kept; if it stays so, ${host} or a proxy on the way is at fault ` +
    `(push the image again, or use a mirror: registries.${host}.mirrors=[URL])`;
  return new HarborError(code, message, { hint, details, cause: thrown });
}

/** An image that is here under further names; a store that cannot be written keeps the ones it has. */
async function namedAlso(image: StoredImage, names: string[], store: ImageStore, platform: string) {
  const found = await Promise.all(names.map((name) => store.find(name, platform)));
  if (store.readOnly || found.every((one) => one?.manifest.digest === image.manifest.digest)) return image;
  return await store.add({ manifest: image.manifest, manifestBytes: store.readBlob(image.manifest.digest) }, names);
}

async function pulled(reference: Reference, deps: PullDeps, signal: AbortSignal, emit: Emit): Promise<StoredImage> {
  const { registry, store, platform, names = [] } = deps;
  const image = await registry.image(reference, platform, signal);
  refuseForeign(image.layers);
  const layers = [...new Map(image.layers.map((layer) => [layer.digest, layer])).values()];
  const missing = layers.filter(({ digest }) => !store.has(digest));
  const progress = progressOf(image, layers, missing, emit);
  await store.take(image.config, memorySource(image.configBytes), signal);
  await pool(missing, LAYERS_AT_ONCE, async (layer) => {
    let counted = 0;
    await store.take(layer, async (offset) => {
      progress.add(offset - counted); // what is here of an earlier try, or is fetched once more
      counted = offset;
      const stream = await registry.blob(reference, layer, { offset }, signal);
      return counting(stream, (bytes) => {
        counted += bytes;
        progress.add(bytes);
      });
    }, signal);
    progress.add(layer.size - counted); // another process may have brought it
  }, signal);
  signal.throwIfAborted();
  const stored = await store.add(image, [canonical(reference), image.pinned, ...names]);
  progress.done();
  return stored;
}

function refuseForeign(layers: readonly Descriptor[]): void {
  const foreign = layers.filter(isForeign);
  if (foreign.length === 0) return;
  const list = foreign.map(({ digest, mediaType }) => `${digest} (${mediaType})`).join(", ");
  throw new HarborError(
    "image.failed",
    `its publisher does not let registries hand on these layers: ${list}`,
    {
      hint: "build from a base image without foreign layers (Windows bases have them)",
    },
  );
}

function progressOf(image: RemoteImage, layers: Descriptor[], missing: Descriptor[], emit: Emit) {
  const sum = (some: Descriptor[]) => some.reduce((all, { size }) => all + size, 0);
  const total = sum(layers);
  let bytes = total - sum(missing);
  let told = bytes;
  const tell = (state: "begun" | "going" | "done") =>
    emit({ kind: "pull", image: image.reference.written, bytes, total, state });
  if (missing.length > 0) tell("begun");
  return {
    add(more: number) {
      bytes += more;
      if (bytes - told < STEP_BYTES) return;
      told = bytes;
      tell("going");
    },
    done: () => missing.length > 0 && tell("done"),
  };
}

async function* counting(stream: AsyncIterable<Uint8Array>, count: (bytes: number) => void) {
  for await (const chunk of stream) {
    count(chunk.length);
    yield chunk;
  }
}
