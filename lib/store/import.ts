/** Images from wherever a person has them: files, folders, engines. */
import { createReadStream, existsSync, statSync } from "node:fs";
import { join, resolve } from "node:path";
import { HarborError } from "../errors.ts";
import { statTarget } from "../files/tree.ts";
import type { Runner } from "../runtime/runner.ts";
import type { Clock } from "../runtime/clock.ts";
import { unpacked } from "../unpack/decompress.ts";
import type { TarHeader } from "../unpack/tar_header.ts";
import { TarReader } from "../unpack/tar_reader.ts";
import { importArchive } from "./archive_in.ts";
import { copyImage } from "./copy.ts";
import { importFromEngine } from "./engine.ts";
import { openStore } from "./layout.ts";
import { importRootfs, importRootfsArchive, looksLikeRoot } from "./rootfs.ts";
import type { ImageStore, StoredImage } from "./store.ts";

export interface ImportRequest {
  /** An archive, a folder, `docker:NAME` or `podman:NAME`. */
  source: string;
  /** Working directory that a path is relative to. */
  cwd: string;
  /** Names instead of those that the source says; must be given where it says none. */
  names: string[];
  /** For a root file system, which does not say its own. */
  platform: string;
}

/** Takes all images of the source in. Throws "usage", "target.missing" or "image.failed". */
export async function importImages(
  { source, cwd, names, platform }: ImportRequest,
  store: ImageStore,
  { runner, clock }: { runner: Runner; clock: Clock },
  signal: AbortSignal,
): Promise<StoredImage[]> {
  const given = names.length > 0 ? names : undefined;
  const [, engine, name] = /^(docker|podman):(.+)$/.exec(source) ?? [];
  if (engine !== undefined && !existsSync(resolve(cwd, source))) {
    return [await importFromEngine(engine as "docker" | "podman", name!, store, { runner, names: given }, signal)];
  }
  const path = resolve(cwd, source);
  const rootfs = () => ({ names: given ?? needName(source), platform, runner });
  if (statTarget(path) === undefined) {
    throw new HarborError("target.missing", `There is no ${path}`, {
      hint: "give an archive, a folder, docker:NAME or podman:NAME",
    });
  }
  if (statSync(path).isDirectory()) {
    if (existsSync(join(path, "oci-layout"))) return await importLayout(path, store, given, { clock }, signal);
    if (existsSync(join(path, "bundle.json"))) {
      throw new HarborError("usage", `${source} is a bundle`, { hint: `gym-harbor bundle import ${source}` });
    }
    if (!looksLikeRoot(path)) throw notAnImage(source);
    return [await importRootfs(path, store, rootfs(), signal)];
  }
  if (await isRootfsArchive(path, source, signal)) return [await importRootfsArchive(path, store, rootfs(), signal)];
  return await importArchive(
    createReadStream(path, { highWaterMark: 1 << 20 }),
    store,
    { what: source, names: given },
    signal,
  );
}

async function importLayout(
  path: string,
  store: ImageStore,
  names: string[] | undefined,
  { clock }: { clock: Clock },
  signal: AbortSignal,
): Promise<StoredImage[]> {
  const from = openStore(path, { clock, readOnly: true });
  const faults = await from.faults();
  if (faults.length > 0) {
    const list = faults.map((fault) => `${fault.names[0] ?? fault.manifestDigest}: ${fault.reason}`);
    throw new HarborError("image.failed", `Cannot import ${path}: ${list.join("; ")}`, {
      hint: "copy the folder again from where it came from",
    });
  }
  const images = await from.list();
  if (images.length === 0) throw new HarborError("image.failed", `Cannot import ${path}: its index names no image`);
  if (names !== undefined && images.length > 1) {
    throw new HarborError("usage", `${path} has ${images.length} images, and one name was given`, {
      hint: "leave --name out: each keeps its own names",
    });
  }
  const taken: StoredImage[] = [];
  for (const image of images) {
    const own = image.names.filter((name) => /[/:]/.test(name) || name.startsWith("hb__"));
    taken.push(await copyImage(image, from, store, names ?? own, signal));
  }
  return taken;
}

function needName(source: string): never {
  throw new HarborError("usage", `${source} is a root file system, which has no name of its own`, {
    hint: "give it one: --name NAME:TAG",
  });
}

const notAnImage = (source: string): HarborError =>
  new HarborError("usage", `${source} is neither an OCI layout nor a root file system (it has no bin, usr or etc)`, {
    hint: "give an archive of 'docker save' or 'podman save', an OCI layout, or the top folder of a root file system",
  });

/** Enough to tell: engines begin with digests, blobs or their manifest, systems with ./, bin or etc. */
const LOOK_AT = 16;
const OF_ARCHIVES = /^(?:manifest\.json|index\.json|oci-layout|repositories|blobs\/.*|blobs|[0-9a-f]{64}(?:[./].*)?)$/;
const OF_SYSTEMS = /^(?:\.dockerenv|(?:bin|usr|etc|lib|sbin|dev|boot|home|opt|proc|root|var)(?:\/.*)?)$/;

class Enough extends Error {}

/** Whether the first names in the archive are those of a root file system. */
async function isRootfsArchive(path: string, what: string, signal: AbortSignal): Promise<boolean> {
  const names: string[] = [];
  const entry = ({ name }: TarHeader): void => {
    names.push(name.replace(/^(?:\.\/)+/, "").replace(/\/$/, ""));
    if (names.length === LOOK_AT) throw new Enough();
  };
  const reader = new TarReader({ entry, data: () => {}, end: () => {} }, what);
  try {
    await unpacked(path, (chunk) => reader.push(chunk), signal);
  } catch (error) {
    if (signal.aborted) throw error;
    if (!(error instanceof Enough)) return false; // the reader of archives says what is wrong
  }
  return !names.some((name) => OF_ARCHIVES.test(name)) && names.some((name) => OF_SYSTEMS.test(name));
}
