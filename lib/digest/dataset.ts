/**
 * Identity of a dataset, and of a task under the dataset's settings (task-format §9.2). The layouts are ours, where
 * upstream documents what is covered but not the bytes; the values cannot be promised to equal NeMo Gym's.
 */
import { createHash } from "node:crypto";
import { statKind } from "../files/tree.ts";
import { sortByCodePoint } from "../files/order.ts";
import { canonicalJson, sha256 } from "./canonical.ts";
import { FileReader } from "./reader.ts";

/** What of a dataset enters the digest of one of its tasks. */
export interface TaskSettings {
  /** `[gym.defaults]`; `num_repeats` and values equal to the defaults (1) do not count. */
  defaults?: { timeout_multiplier?: number; resource_multiplier?: number };
  /** The task's own table of `[gym.tasks]`, as it is written. */
  override?: Record<string, unknown>;
  /** SHA-256 of the dataset's `verifier.py`, when that grades the task. */
  verifier?: string;
}

/** The digest a row carries: the folder's own where the dataset adds nothing. 64 hex digits. */
export function effectiveDigest(folderDigest: string, settings: TaskSettings): string {
  const { timeout_multiplier = 1, resource_multiplier = 1 } = settings.defaults ?? {};
  const parts: [string, string | undefined][] = [
    [
      "gym.defaults",
      timeout_multiplier === 1 && resource_multiplier === 1
        ? undefined
        : sha256(canonicalJson({ timeout_multiplier, resource_multiplier })),
    ],
    ["gym.tasks", settings.override === undefined ? undefined : sha256(canonicalJson(settings.override))],
    ["verifier.py", settings.verifier],
  ];
  const lines = parts.filter(([, digest]) => digest !== undefined).map(([name, digest]) => `${name}\0${digest}\n`);
  return lines.length === 0 ? folderDigest : sha256(`task\0${folderDigest}\n${lines.join("")}`);
}

export interface DatasetDigests {
  dataset_digest: string;
  /** Only where the file exists. */
  dataset_toml_digest?: string;
  /** Only with `task_data.py` or `verifier.py`. */
  dataset_files_digest?: string;
}

/**
 * Digests of a dataset from its folder and the folder digests of its tasks, in whatever order. 64 hex digits each.
 * Throws HarborError "task.invalid" naming a file that cannot be read.
 */
export function datasetDigest(folder: string, taskDigests: Iterable<string>): DatasetDigests {
  const { dataset_toml_digest, dataset_files_digest } = datasetFileDigests(folder);
  const digest = createHash("sha256");
  for (const one of sortByCodePoint([...taskDigests])) digest.update(`${one}\n`);
  if (dataset_toml_digest !== undefined) digest.update(`${dataset_toml_digest}\n`);
  if (dataset_files_digest !== undefined) digest.update(`${dataset_files_digest}\n`);
  return {
    dataset_digest: digest.digest("hex"),
    ...(dataset_toml_digest !== undefined && { dataset_toml_digest }),
    ...(dataset_files_digest !== undefined && { dataset_files_digest }),
  };
}

/** The part of a dataset's identity that is not in its tasks. Throws as `datasetDigest`. */
function datasetFileDigests(folder: string): Omit<DatasetDigests, "dataset_digest"> {
  const reader = new FileReader();
  const sum = (name: string): string | undefined => {
    const path = `${folder}/${name}`;
    return statKind(path) === undefined ? undefined : reader.sum(path);
  };
  const toml = sum("dataset.toml");
  const lines = ["task_data.py", "verifier.py"].flatMap((name) => {
    const found = sum(name);
    return found === undefined ? [] : [`${name}\0${found}\n`];
  });
  return {
    ...(toml !== undefined && { dataset_toml_digest: toml }),
    ...(lines.length > 0 && { dataset_files_digest: sha256(lines.join("")) }),
  };
}

/** SHA-256 of the dataset's `verifier.py`, for `TaskSettings.verifier`. Throws as `datasetDigest`. */
export const verifierDigest = (folder: string): string => new FileReader().sum(`${folder}/verifier.py`);
