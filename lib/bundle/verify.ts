/**
 * Whether a bundle arrived as it was written: every file by its sum, the image layout, the digest of every task, every
 * name that a task starts. All faults are listed, each by its file and with what to do. Reads, writes nothing.
 */
import { lstatSync, readFileSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import { datasetDigest } from "../digest/dataset.ts";
import { taskDigest } from "../digest/task.ts";
import { errno, HarborError } from "../errors.ts";
import { reasonOf } from "../files/reason.ts";
import { walkTree } from "../files/tree.ts";
import { platformName } from "../images/config.ts";
import type { ImageStore } from "../store/store.ts";
import { hashFile, type Progress } from "./copy.ts";
import { type Bundle, CARRY_AGAIN, parseBundle, PLACES, unfinishedExport } from "./schema.ts";
import { readSums } from "./sums.ts";

export interface BundleFault {
  /** Below the bundle's folder. */
  file: string;
  what: string;
  /** What to do. */
  fix: string;
}

export interface VerifyOptions extends Progress {
  /** `os/arch` that the images must be for; absent: whatever the bundle says. */
  platform?: string;
  /** The bundle's layout. */
  store: ImageStore;
}

export interface Verified {
  /** Undefined when its index cannot be read. */
  bundle: Bundle | undefined;
  faults: BundleFault[];
  files: number;
}

/** Throws "bundle.invalid" for a folder that is no bundle or half of one, and the abort. */
export async function verifyBundle(folder: string, options: VerifyOptions): Promise<Verified> {
  const indexText = readPart(folder, PLACES.index);
  const sumsText = readPart(folder, PLACES.sums);
  if (indexText === undefined || sumsText === undefined || isThere(folder, PLACES.unfinished)) {
    throw unfinishedExport(folder);
  }
  const faults = new Map<string, BundleFault>();
  // The first fault of a file explains what follows from it.
  const fault = (file: string, what: string, fix = CARRY_AGAIN): void => {
    if (!faults.has(file)) faults.set(file, { file, what, fix });
  };
  const { sums, bad } = readSums(sumsText);
  if (bad.length > 0) fault(PLACES.sums, `line ${bad[0]} is not '<sha256>  <path>'`);
  const bundle = indexOf(folder, indexText, fault);
  await checkSums(folder, sums, bundle, fault, options);
  if (bundle !== undefined) {
    if (options.platform !== undefined) checkPlatform(bundle, options.platform, fault);
    checkShape(folder, bundle, fault);
    checkDigests(folder, bundle, fault);
    await checkImages(bundle, options.store, fault);
  }
  return { bundle, faults: [...faults.values()], files: sums.size };
}

type Fault = (file: string, what: string, fix?: string) => void;

function readPart(folder: string, name: string): string | undefined {
  try {
    return readFileSync(join(folder, name), "utf8");
  } catch (error) {
    if (errno(error) === "ENOENT") return undefined;
    throw new HarborError("bundle.invalid", `Cannot read ${join(folder, name)}: ${reasonOf(error)}`, { cause: error });
  }
}

const isThere = (folder: string, path: string): boolean =>
  lstatSync(join(folder, path), { throwIfNoEntry: false }) !== undefined;

function indexOf(folder: string, text: string, fault: Fault): Bundle | undefined {
  try {
    return parseBundle(text, join(folder, PLACES.index));
  } catch (error) {
    if (!(error instanceof HarborError)) throw error;
    fault(PLACES.index, error.message, error.hint);
    return undefined;
  }
}

async function checkSums(
  folder: string,
  sums: ReadonlyMap<string, string>,
  bundle: Bundle | undefined,
  fault: Fault,
  progress: Progress,
): Promise<void> {
  for (const [path, wanted] of sums) {
    if (path.startsWith("/") || path.split("/").includes("..")) {
      fault(PLACES.sums, `it names a file outside of the bundle: ${path}`);
      continue;
    }
    try {
      if (!lstatSync(join(folder, path)).isFile()) fault(path, "is not a regular file");
      else if (await hashFile(join(folder, path), progress) !== wanted) {
        fault(path, "its bytes are not those of its sum");
      }
    } catch (error) {
      progress.signal.throwIfAborted();
      if (errno(error) === undefined) throw error;
      fault(path, errno(error) === "ENOENT" ? "is missing" : `cannot be read: ${reasonOf(error)}`);
    }
  }
  const links = new Set(bundle && Object.keys(bundle.dataset.links).map((path) => datasetPath(bundle, path)));
  walkTree(folder, ({ path, kind }) => {
    if (kind === "dir" || path === PLACES.sums || sums.has(path) || links.has(path)) return;
    if (kind === "link" && bundle === undefined) return; // its index would tell
    fault(path, "is not of this bundle", "remove it");
  });
}

const datasetPath = ({ dataset }: Bundle, path: string): string => `${PLACES.dataset}/${dataset.folder}/${path}`;

function checkPlatform(bundle: Bundle, platform: string, fault: Fault): void {
  if (platformName(bundle.platform) === platformName(platform)) return;
  fault(
    PLACES.index,
    `its images are for ${bundle.platform}, not for ${platform}`,
    `export it again with --platform ${platform}, or use it on a machine of that kind`,
  );
}

const KEEPS_ALL = "carry it with tar, or with rsync -a or cp -a onto a file system that keeps them";

/** What file systems without modes, links or empty folders lose. */
function checkShape(folder: string, bundle: Bundle, fault: Fault): void {
  const { executable, links, empty_folders } = bundle.dataset;
  for (const path of executable.map((one) => datasetPath(bundle, one))) {
    const found = lstatSync(join(folder, path), { throwIfNoEntry: false });
    if (found?.isFile() && (found.mode & 0o111) === 0) fault(path, "is no longer executable", KEEPS_ALL);
  }
  for (const [path, target] of Object.entries(links).map(([one, to]) => [datasetPath(bundle, one), to] as const)) {
    const found = lstatSync(join(folder, path), { throwIfNoEntry: false });
    if (found?.isSymbolicLink() && readlinkSync(join(folder, path)) === target) continue;
    fault(path, `is no longer a link to ${target}`, KEEPS_ALL);
  }
  for (const path of empty_folders.map((one) => datasetPath(bundle, one))) {
    if (lstatSync(join(folder, path), { throwIfNoEntry: false })?.isDirectory()) continue;
    fault(path, "is no longer a folder", KEEPS_ALL);
  }
}

function checkDigests(folder: string, bundle: Bundle, fault: Fault): void {
  const { dataset, tasks } = bundle;
  const found: string[] = [...dataset.left_out];
  for (const { path, folder_digest } of Object.values(tasks)) {
    const at = datasetPath(bundle, path);
    if (folder_digest === null) continue;
    found.push(folder_digest);
    try {
      const now = taskDigest(join(folder, at));
      if (now !== folder_digest) fault(at, `its task digest is ${now}, must be ${folder_digest}`);
    } catch (error) {
      if (!(error instanceof HarborError)) throw error;
      fault(at, error.message);
    }
  }
  try {
    const now = datasetDigest(join(folder, PLACES.dataset, dataset.folder), found).dataset_digest;
    const at = `${PLACES.dataset}/${dataset.folder}`;
    // Of one task its parent's other tasks are no part.
    if (now !== dataset.digest) fault(at, `its dataset digest is ${now}, must be ${dataset.digest}`);
  } catch (error) {
    if (!(error instanceof HarborError)) throw error;
    fault(`${PLACES.dataset}/${dataset.folder}`, error.message);
  }
}

async function checkImages(bundle: Bundle, store: ImageStore, fault: Fault): Promise<void> {
  const index = `${PLACES.images}/index.json`;
  for (const one of await store.faults().catch(asFault(fault, index))) {
    fault(blobOf(one.manifestDigest), `${one.names.join(", ") || "an image"}: ${one.reason}`);
  }
  for (const image of bundle.images) {
    const at = blobOf(image.manifest_digest);
    for (const reference of image.refs) {
      const found = await store.find(reference, bundle.platform).catch(() => undefined);
      if (found === undefined) fault(at, `${reference} does not lead to an image of this bundle that is whole`);
      else if (found.config.digest !== image.config_digest) {
        fault(at, `${reference} leads to the image ${found.config.digest}, must be ${image.config_digest}`);
      } else if (JSON.stringify(found.layers.map(({ diffId }) => diffId)) !== JSON.stringify(image.diff_ids)) {
        fault(at, `${reference} has other layers than ${PLACES.index} says`);
      }
    }
    const own = `${image.os}/${image.architecture}`;
    if (platformName(own) !== platformName(bundle.platform)) {
      fault(at, `it is an image for ${own} in a bundle for ${bundle.platform}`, `export it again for one platform`);
    }
  }
  const known = new Set(bundle.images.map(({ id }) => id));
  for (const [id, task] of Object.entries(bundle.tasks)) {
    const missing = task.images.filter((image) => !known.has(image));
    if (missing.length > 0) {
      fault(PLACES.index, `the task ${id} starts images that are not here: ${missing.join(", ")}`);
    }
  }
}

const blobOf = (digest: string): string => `${PLACES.images}/blobs/sha256/${digest.replace(/^sha256:/, "")}`;

const asFault = (fault: Fault, file: string) => (error: unknown): [] => {
  if (!(error instanceof HarborError)) throw error;
  fault(file, error.message);
  return [];
};
