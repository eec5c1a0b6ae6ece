/**
 * What the user named → a folder and its role (task-format §1.3, images-and-sandboxes §1.1); of a bundle, the dataset
 * inside. Nothing is fetched in this version: `harbor:` references and entry names say so.
 */
import { readdirSync, statSync } from "node:fs";
import { basename, dirname, isAbsolute, join, resolve } from "node:path";
import { errno, HarborError } from "../errors.ts";
import { nearest } from "../suggest.ts";
import { holdsTaskToml } from "../task/discover.ts";
import { reasonOf } from "../files/reason.ts";
import { bundleAround, bundleAt, type BundlePlace } from "../bundle/locate.ts";
import { PLACES } from "../bundle/schema.ts";

export interface Target {
  kind: "task" | "dataset";
  /** As the user wrote it, without a trailing slash. */
  named: string;
  /** Absolute. */
  folder: string;
  /** The folder itself, or a single task's parent. */
  datasetFolder: string;
  /** Name for results and rows. */
  taskset: string;
  /** The bundle that it lies in. */
  bundle?: BundlePlace;
}

/**
 * Throws HarborError "target.missing", "usage" (not a folder), "not-built" (a reference) or "bundle.invalid" (half a
 * bundle, or one from a newer version).
 */
export function resolveTarget(named: string, cwd: string): Target {
  if (named.startsWith("harbor:")) {
    throw new HarborError("not-built", `Cannot fetch ${named}: hub references are not in this version`, {
      hint: "fetch the task folders by other means and name their folder",
    });
  }
  if (named === "") throw new HarborError("usage", "the path is empty", { hint: WHAT_TO_NAME });
  const folder = resolve(cwd, named);
  if (!isFolder(folder, named, cwd)) {
    const inside = ["task.toml", "dataset.toml"].includes(basename(folder));
    throw new HarborError("usage", `${named} is not a directory`, {
      hint: inside ? `name the folder: ${dirname(named)}` : WHAT_TO_NAME,
    });
  }
  const shown = named.replace(/(?<=.)\/+$/, "");
  const bundle = bundleAt(folder);
  if (bundle !== undefined) return targetIn(bundle, shown);
  const kind = isTask(folder, named) ? "task" : "dataset";
  const around = bundleAround(folder);
  return {
    ...(around !== undefined && { bundle: around }),
    kind,
    named: shown,
    folder,
    datasetFolder: kind === "task" ? dirname(folder) : folder,
    taskset: basename(folder) || "root",
  };
}

/** What a bundle was exported from, at its place inside and under its own name. */
function targetIn(bundle: BundlePlace, named: string): Target {
  const { kind, taskset, folder } = bundle.index.dataset;
  const below = kind === "task" ? Object.values(bundle.index.tasks).map(({ path }) => path).slice(0, 1) : [];
  return {
    kind,
    named: join(named, PLACES.dataset, folder, ...below),
    folder: join(bundle.dataset, ...below),
    datasetFolder: bundle.dataset,
    taskset,
    bundle,
  };
}

/** Folder digests of a dataset's tasks that its bundle does not carry: they are part of its identity all the same. */
export const leftOut = ({ kind, bundle }: Target): string[] =>
  kind === "dataset" && bundle !== undefined ? bundle.index.dataset.left_out : [];

const WHAT_TO_NAME = "name a task folder or a folder of task folders";

function isFolder(folder: string, named: string, cwd: string): boolean {
  try {
    return statSync(folder).isDirectory();
  } catch (cause) {
    if (errno(cause) === "ENOENT" || errno(cause) === "ENOTDIR") throw missing(named, folder, cwd, cause);
    throw unreachable(named, cause);
  }
}

function isTask(folder: string, named: string): boolean {
  try {
    return holdsTaskToml(folder);
  } catch (cause) {
    throw unreachable(named, cause);
  }
}

const unreachable = (named: string, cause: unknown): HarborError =>
  new HarborError("target.missing", `Cannot look into ${named}: ${reasonOf(cause)}`, {
    cause,
    hint: errno(cause) === "EACCES" ? "make it readable for this user (chmod u+rx)" : WHAT_TO_NAME,
  });

function missing(named: string, folder: string, cwd: string, cause: unknown): HarborError {
  const entry = join(cwd, "environments/harbor", named);
  if (!isAbsolute(named) && !named.includes("/") && statSync(entry, { throwIfNoEntry: false }) !== undefined) {
    return new HarborError("not-built", `${named} is an entry name, and entries are not in this version`, {
      hint: `name its folder: environments/harbor/${named}`,
    });
  }
  const near = nearest(basename(folder), siblings(dirname(folder)));
  return new HarborError("target.missing", `${named} does not exist`, {
    cause,
    hint: near === undefined ? WHAT_TO_NAME : `did you mean ${join(dirname(named), near)}?`,
  });
}

function siblings(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}
