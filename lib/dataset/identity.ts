/** The digest that a row of a task carries, under the settings of its dataset (task-format §9.2). */
import { effectiveDigest, verifierDigest } from "../digest/dataset.ts";
import type { Grader } from "../task/task.ts";
import type { Dataset } from "./load.ts";
import type { DatasetSettings } from "./overrides.ts";

/** Whether the dataset's own verifier.py grades a task, which makes it a part of the task's identity. */
export const isGradedByDataset = (grader: Grader | null): boolean => grader?.kind === "python" && grader.tests === null;

/**
 * Effective digests of one dataset's tasks. `defaults` of a command line win over those of dataset.toml. The function
 * throws HarborError "task.invalid" when verifier.py is needed and cannot be read.
 */
export function effectiveDigests(
  dataset: Pick<Dataset, "folder"> & { settings: DatasetSettings },
  defaults: { timeout_multiplier?: number } = {},
): (id: string, folderDigest: string, gradedByDataset: boolean) => string {
  const { raw } = dataset.settings;
  const tables = { ...raw.defaults, ...defaults };
  let verifier: string | undefined;
  return (id, folderDigest, gradedByDataset) => {
    if (gradedByDataset) verifier ??= verifierDigest(dataset.folder);
    return effectiveDigest(folderDigest, {
      defaults: tables,
      override: raw.overrides.get(id) as Record<string, unknown> | undefined,
      ...(gradedByDataset && { verifier }),
    });
  };
}
