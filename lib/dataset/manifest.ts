/**
 * manifest.toml: derived facts beside the task folders, so that equal manifests mean identical task folders and dataset
 * files (task-format §10). Fixed key order, tasks by id, no times. Only a run's preparation writes one.
 */
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { z } from "zod";
import type { DatasetDigests } from "../digest/dataset.ts";
import { errno, HarborError } from "../errors.ts";
import { writeAtomic } from "../files/atomic.ts";
import { sortByCodePoint } from "../files/order.ts";
import { reasonOf } from "../files/reason.ts";
import { statTarget } from "../files/tree.ts";
import type { Runner } from "../runtime/runner.ts";
import { readToml } from "../task/toml.ts";

const NAME = "manifest.toml";
const LOCAL = "local";
/** What a fetch wrote is checked, never rewritten. */
const FETCHED = ["harbor-registry", "harbor-package-store"];

export const Manifest = z.looseObject({
  dataset: z.looseObject({
    source: z.enum([LOCAL, "git", ...FETCHED]),
    ref: z.string().optional(),
    digest: z.string().optional(),
    dataset_toml_digest: z.string().optional(),
    dataset_files_digest: z.string().optional(),
  }),
  tasks: z.record(z.string(), z.looseObject({ digest: z.string().optional() })).default({}),
});
export type Manifest = z.infer<typeof Manifest>;

/** What a dataset is now. */
export interface DatasetFacts {
  /** Folder digests by task id. */
  tasks: ReadonlyMap<string, string>;
  digests: DatasetDigests;
  /** Every task folder has a digest. Otherwise the dataset's own is left out. */
  complete: boolean;
}

export interface Reconciled {
  /**
   * `written`: new or changed. `kept`: as it was. `tracked`: git tracks the folder, so its history is the record.
   * `unwritable`: the folder takes no file, which is no reason not to run.
   */
  outcome: "written" | "kept" | "tracked" | "unwritable";
  /** What a person should know. */
  note?: string;
}

export interface ReconcileDeps {
  runner: Pick<Runner, "run">;
  signal: AbortSignal;
}

/**
 * Brings the manifest of a dataset folder up to date, or checks a fetched folder against its own. Not for a single
 * task, which gets none. Throws HarborError "task.invalid" for a fetched folder that no longer matches and for a folder
 * inside a fetched one.
 */
export async function reconcileManifest(
  folder: string,
  facts: DatasetFacts,
  deps: ReconcileDeps,
): Promise<Reconciled> {
  refuseInsideFetched(folder);
  const path = join(folder, NAME);
  const found = readManifest(path);
  if (found.manifest !== undefined && found.manifest.dataset.source !== LOCAL) {
    if (FETCHED.includes(found.manifest.dataset.source)) refuseChanged(folder, found.manifest, facts);
    return { outcome: "kept" };
  }
  const text = manifestText(facts);
  if (found.text === text) return { outcome: "kept" };
  if (await isTracked(folder, deps)) return { outcome: "tracked" };
  try {
    await writeAtomic(path, text);
  } catch (error) {
    return { outcome: "unwritable", note: `${path} is not written: ${reasonOf(error)}` };
  }
  return { outcome: "written", ...(found.fault !== undefined && { note: found.fault }) };
}

export interface FoundManifest {
  text?: string;
  /** Undefined when there is none, or none that can be read. */
  manifest?: Manifest;
  fault?: string;
}

export function readManifest(path: string): FoundManifest {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    return errno(error) === "ENOENT" ? {} : { fault: `${path} is unreadable and will be rewritten` };
  }
  const toml = readToml(text);
  const manifest = toml.ok ? Manifest.safeParse(toml.table).data : undefined;
  return {
    text,
    ...(manifest === undefined ? { fault: `${path} is unreadable and will be rewritten` } : { manifest }),
  };
}

/** The manifest of a folder that somebody authors. */
export function manifestText({ tasks, digests, complete }: DatasetFacts): string {
  const dataset = {
    source: LOCAL,
    digest: complete ? digests.dataset_digest : undefined,
    dataset_toml_digest: digests.dataset_toml_digest,
    dataset_files_digest: digests.dataset_files_digest,
  };
  const tables = sortByCodePoint([...tasks.keys()]).map((id) =>
    table(`tasks.${quoted(id)}`, { digest: tasks.get(id) })
  );
  return [table("dataset", dataset), ...tables].join("\n");
}

function table(name: string, values: Record<string, string | undefined>): string {
  const lines = Object.entries(values).flatMap(([key, value]) =>
    value === undefined ? [] : [`${key} = ${quoted(value)}\n`]
  );
  return `[${name}]\n${lines.join("")}`;
}

/** A TOML basic string: as JSON writes it, save that TOML also escapes DEL. */
const quoted = (text: string): string => JSON.stringify(text).replaceAll("\x7f", "\\u007f");

function refuseChanged(folder: string, { dataset, tasks }: Manifest, facts: DatasetFacts): void {
  const changed: string[] = [];
  for (const [id, { digest }] of Object.entries(tasks)) {
    const now = facts.tasks.get(id);
    if (digest !== undefined && now !== digest) changed.push(now === undefined ? `${id} (missing)` : `${id} (changed)`);
  }
  for (const id of facts.tasks.keys()) if (tasks[id] === undefined) changed.push(`${id} (not of it)`);
  for (const key of ["dataset_toml_digest", "dataset_files_digest"] as const) {
    if (dataset.digest !== undefined && dataset[key] !== facts.digests[key]) changed.push(key.replace(/_digest$/, ""));
  }
  if (changed.length === 0) return;
  throw new HarborError(
    "task.invalid",
    `${folder} is no longer what was fetched: ${sortByCodePoint(changed).join(", ")}`,
    {
      hint: `fetch ${
        dataset.ref ?? "it"
      } again into another folder, or remove its ${NAME} to go on with a dataset of your own`,
      details: { folder, changed },
    },
  );
}

function refuseInsideFetched(folder: string): void {
  for (let above = dirname(folder); above !== dirname(above); above = dirname(above)) {
    const source = readManifest(join(above, NAME)).manifest?.dataset.source;
    if (source === undefined || !FETCHED.includes(source)) continue;
    throw new HarborError("task.invalid", `${folder} lies inside the fetched dataset ${above}`, {
      hint: `run ${above} itself, with --only-tasks for a part of it, or copy the folder elsewhere`,
    });
  }
}

/** Without a git program a repository around the folder counts as tracking it (spec/decisions 20). */
async function isTracked(folder: string, { runner, signal }: ReconcileDeps): Promise<boolean> {
  if (!isInRepository(folder)) return false;
  // The repository's own configuration must not start programs here.
  const argv = ["git", "-c", "core.fsmonitor=false", "-C", folder, "ls-files", "--cached", "--", "."];
  try {
    const listed = await runner.run(argv, { signal, deadlineMs: 10_000, keepBytes: 1024 });
    signal.throwIfAborted();
    return listed.ended !== "exit" || listed.exitCode !== 0 || listed.stdout !== "";
  } catch (error) {
    if (error instanceof HarborError && error.code === "machine.lacks") return true;
    throw error;
  }
}

function isInRepository(folder: string): boolean {
  for (let above = folder;; above = dirname(above)) {
    if (statTarget(join(above, ".git")) !== undefined) return true;
    if (above === dirname(above)) return false;
  }
}
