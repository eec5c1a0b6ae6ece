/**
 * Images between an engine and our store, as docker-archives in a stream: nothing but blobs lies on disk twice, and the
 * configuration stays byte for byte, so that an image is the same by its digest on both sides.
 */
import { once } from "node:events";
import type { Writable } from "node:stream";
import { HarborError, isDiskFull } from "../lib/errors.ts";
import { localAlias } from "../lib/images/alias.ts";
import { Producer } from "../lib/runtime/producer.ts";
import type { RunResult } from "../lib/runtime/runner.ts";
import { decisiveLine, engineFailure } from "../lib/sandbox/failure.ts";
import { importArchive } from "../lib/store/archive_in.ts";
import { dockerArchive } from "../lib/store/archive_out.ts";
import type { ImageStore, StoredImage } from "../lib/store/store.ts";
import { loadArgv, saveArgv, tagArgv } from "./_oci_argv.ts";
import type { SandboxDeps } from "./_oci_deps.ts";
import { configDigestOf, type Inspected, inspectImage, platformOfImage } from "./_oci_image.ts";
import { engineLock } from "./_oci_lock.ts";

const LOAD_MS = 1_800_000;
const TAG_MS = 60_000;

/**
 * Makes an image of a store startable under `names` (those by digest are left out: an engine gives them to nobody), and
 * under its local alias. What is there already costs a look each. Throws "image.failed".
 */
export async function loadImage(
  deps: SandboxDeps,
  image: StoredImage,
  store: ImageStore,
  names: readonly string[],
  signal: AbortSignal,
): Promise<void> {
  const wanted = tagsFor(image, names);
  if ((await missing(deps, image, wanted, signal)).length === 0) return;
  const what = `load-${image.config.digest.slice("sha256:".length, "sha256:".length + 32)}`;
  const doing = `loads ${wanted[0]}`;
  using _lock = await engineLock(deps, what, { waitMs: LOAD_MS, signal, doing });
  const absent = await missing(deps, image, wanted, signal);
  if (absent.length === 0) return;
  const known = await inspectImage(deps, image.config.digest.replace("sha256:", idPrefix(deps)), signal);
  if (known !== undefined && isSame(known, image)) await tag(deps, known.Id, absent);
  else await load(deps, image, store, absent, signal);
  const [left] = await missing(deps, image, wanted, signal);
  if (left === undefined) return;
  throw new HarborError("image.failed", `${deps.program.path} took ${left} in, yet as another image than was given`, {
    details: { reference: left, config: image.config.digest },
  });
}

/** podman knows an image by its bare digest. */
const idPrefix = ({ program }: SandboxDeps): string => program.engine === "docker" ? "sha256:" : "";

/** Each name with its tag, as archives and engines want it, and the alias last. */
function tagsFor(image: StoredImage, names: readonly string[]): string[] {
  const byTag = names.filter((name) => !name.includes("@"));
  const alias = localAlias(names[0] ?? image.names[0] ?? "image", image.config.digest);
  return [...new Set([...byTag, alias])].map((name) => /:[^/]+$/.test(name) ? name : `${name}:latest`);
}

/** The names under which the engine does not have this image. */
async function missing(
  deps: SandboxDeps,
  image: StoredImage,
  names: readonly string[],
  signal: AbortSignal,
): Promise<string[]> {
  const absent: string[] = [];
  for (const name of names) {
    const found = await inspectImage(deps, name, signal);
    if (found === undefined || !isSame(found, image)) absent.push(name);
  }
  return absent;
}

/** By the configuration, or by the layers where the engine knows images by something else. */
function isSame(found: Inspected, image: StoredImage): boolean {
  const config = configDigestOf(found);
  if (config !== undefined) return config === image.config.digest;
  const layers = found.RootFS?.Layers ?? [];
  return platformOfImage(found) === image.platform && layers.length === image.layers.length &&
    image.layers.every(({ diffId }, index) => layers[index] === diffId);
}

async function tag({ program, runner, env }: SandboxDeps, id: string, names: readonly string[]): Promise<void> {
  for (const name of names) {
    const tagged = await runner.run(tagArgv(program, id, name), { env, deadlineMs: TAG_MS });
    if (tagged.ended === "exit" && tagged.exitCode === 0) continue;
    throw new HarborError("image.failed", `${program.path} cannot name ${id} ${name}: ${said(tagged.stderr)}`);
  }
}

async function load(
  deps: SandboxDeps,
  image: StoredImage,
  store: ImageStore,
  tags: string[],
  signal: AbortSignal,
): Promise<void> {
  const { program, runner, env, gate } = deps;
  const stdin = (to: Writable) => send(dockerArchive([{ image, tags }], store), to);
  const loaded = await gate.hold(() => runner.run(loadArgv(program), { env, signal, deadlineMs: LOAD_MS, stdin }));
  signal.throwIfAborted();
  if (loaded.ended === "exit" && loaded.exitCode === 0) return;
  throw new HarborError("image.failed", `${program.path} cannot load ${tags[0]}: ${why(loaded)}`, {
    hint: "see whether there is room where the engine keeps its images",
    details: { reference: tags[0] },
  });
}

async function send(chunks: AsyncIterable<Uint8Array>, to: Writable): Promise<void> {
  for await (const chunk of chunks) if (!to.write(chunk)) await once(to, "drain");
}

const why = ({ ended, stderr }: RunResult): string =>
  ended === "deadline" ? `it did not end within ${LOAD_MS / 1000} s` : said(stderr);

const said = (stderr: string): string => engineFailure(stderr)?.line ?? decisiveLine(stderr);

/**
 * Brings an image of the engine into a store under `names`, its configuration byte for byte. Throws "image.failed" for one
 * that the engine does not have or does not give whole.
 */
export async function saveImage(
  deps: SandboxDeps,
  reference: string,
  store: ImageStore,
  names: readonly string[],
  signal: AbortSignal,
): Promise<StoredImage> {
  const { program } = deps;
  const image = await inspectImage(deps, reference, signal);
  if (image === undefined) {
    throw new HarborError("image.failed", `Image ${reference} is not in ${program.path}`, {
      hint: `${program.path} images lists what is there`,
    });
  }
  const config = configDigestOf(image);
  const there = config === undefined ? undefined : await store.find(config, platformOfImage(image));
  if (there !== undefined) {
    const { manifest, indexDigest } = there;
    return await store.add({ manifest, manifestBytes: store.readBlob(manifest.digest), indexDigest }, [...names]);
  }
  const [saved] = await deps.gate.hold(() => save(deps, image.Id, { reference, store, names, signal }));
  if (config !== undefined && saved!.config.digest !== config) {
    throw new HarborError(
      "image.failed",
      `${program.path} saved ${reference} with another configuration: ${saved!.config.digest}, not ${config}`,
    );
  }
  return saved!;
}

interface SaveRequest {
  reference: string;
  store: ImageStore;
  names: readonly string[];
  signal: AbortSignal;
}

async function save(
  { program, runner, env }: SandboxDeps,
  id: string,
  { reference, store, names, signal }: SaveRequest,
): Promise<StoredImage[]> {
  using client = await Producer.start(runner, saveArgv(program, id), signal, { env });
  const options = { what: `${program.path} save ${reference}`, names: [...names] };
  // Its own end says more than an archive that breaks off because of it.
  return await importArchive(client.stdout, store, options, signal).catch(async (error) => {
    client.kill();
    if (isDiskFull(error)) throw error; // of our store: the engine only lost its reader
    const { exitCode, signal: ended } = await client.exited;
    signal.throwIfAborted();
    if (exitCode === 0 || ended !== null) throw error;
    const reason = said(client.said);
    throw new HarborError("image.failed", `${program.path} cannot save ${reference}: ${reason}`, { cause: error });
  });
}
