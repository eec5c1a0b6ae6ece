/**
 * From a target to what a run takes in: the selected tasks with their effective digests, why others do not load, the
 * identity of the dataset. Every task folder is read once, selected or not, since the dataset's digest covers all.
 */
import { setImmediate } from "node:timers/promises";
import { effectiveDigests, isGradedByDataset } from "./identity.ts";
import { type Dataset, openDataset } from "./load.ts";
import type { DatasetSettings } from "./overrides.ts";
import { type Selection, selectTasks } from "./select.ts";
import { datasetDigest, type DatasetDigests } from "../digest/dataset.ts";
import { taskDigest } from "../digest/task.ts";
import { HarborError } from "../errors.ts";
import { leftOut, type Target } from "../target/resolve.ts";
import type { LoadedTask } from "../task/load.ts";
import type { Finding, Task } from "../task/task.ts";

export interface RunInput {
  target: Target;
  settings: DatasetSettings;
  /** In selection order. */
  tasks: { task: Task; digest: string }[];
  /** Task id → first reason. */
  unloadable: Record<string, string>;
  digests: DatasetDigests;
  /** Folder digest of every task of the dataset that can be hashed, by id. */
  folderDigests: Map<string, string>;
  /** Whether that is every task there is. */
  complete: boolean;
  warnings: { task: string | null; finding: Finding }[];
  /** Digest of a task's folder as it is now, under the same settings. Throws what reading it may throw. */
  digestNow(task: Task): string;
}

/** `gym.defaults.…` of the command line; they win over dataset.toml. */
export interface GymDefaults {
  timeout_multiplier?: number;
}

/** Tasks between two looks at the event loop. */
const BATCH = 64;

/** Throws HarborError "usage" for a selection that matches nothing, "task.invalid" for a dataset that is refused. */
export async function readInput(
  target: Target,
  selection: Selection,
  defaults: GymDefaults,
  signal: AbortSignal,
): Promise<RunInput> {
  const dataset = openDataset(target);
  refuseUnsound(dataset);
  const settings = dataset.settings!;
  const chosen = new Set(selectTasks(dataset.ids, selection));
  const effective = effectiveDigests({ folder: dataset.folder, settings }, defaults);
  const digestOf: Digester = (task, folderDigest) => effective(task.id, folderDigest, isGradedByDataset(task.grader));
  const input: RunInput = {
    target,
    settings,
    tasks: [],
    unloadable: {},
    digests: { dataset_digest: "" },
    folderDigests: new Map(),
    complete: true,
    warnings: dataset.warnings.map((finding) => ({ task: null, finding })),
    digestNow: (task) => digestOf(task, taskDigest(task.folder)),
  };
  let count = 0;
  for (const loaded of dataset.tasks()) {
    if (count++ % BATCH === 0) await setImmediate();
    signal.throwIfAborted();
    if (loaded.hashes.task_digest === null) input.complete = false;
    else input.folderDigests.set(loaded.id, loaded.hashes.task_digest);
    if (!chosen.has(loaded.id)) continue;
    input.warnings.push(...changedSinceExport(loaded, target));
    take(loaded, input, digestOf, defaults, settings);
  }
  input.digests = datasetDigest(dataset.folder, [...input.folderDigests.values(), ...leftOut(target)]);
  return input;
}

/** What a bundle's index says otherwise of a task: its bytes were damaged on the way, or somebody worked on it there. */
function changedSinceExport({ id, hashes }: LoadedTask, { bundle }: Target): RunInput["warnings"] {
  if (bundle === undefined) return [];
  const exported = Object.hasOwn(bundle.index.tasks, id) ? bundle.index.tasks[id] : undefined;
  const now = hashes.task_digest;
  if (exported !== undefined && exported.folder_digest === now) return [];
  const message = exported === undefined
    ? "it is not of the bundle that it lies in"
    : `its files are not those that were exported: its folder digest is ${now}, the bundle says ${exported.folder_digest}`;
  const hint = `gym-harbor bundle verify ${bundle.folder} names what differs`;
  return [{ task: id, finding: { code: "bundle.changed", message, hint } }];
}

type Digester = (task: Task, folderDigest: string) => string;

function take(
  loaded: LoadedTask,
  input: RunInput,
  digestOf: Digester,
  defaults: GymDefaults,
  settings: DatasetSettings,
): void {
  const { id, task, errors, hashes } = loaded;
  if (task === null || hashes.task_digest === null) {
    input.unloadable[id] = errors[0]?.message ?? "its files cannot be hashed";
    return;
  }
  for (const finding of loaded.warnings) input.warnings.push({ task: id, finding });
  const factor = (defaults.timeout_multiplier ?? settings.multipliers.timeout) / settings.multipliers.timeout;
  input.tasks.push({ task: scaled(task, factor), digest: digestOf(task, hashes.task_digest) });
}

/** The loader applied dataset.toml's multiplier; this brings the command line's in its place. */
function scaled(task: Task, factor: number): Task {
  if (factor === 1) return task;
  return {
    ...task,
    agent: { ...task.agent, timeout_sec: task.agent.timeout_sec * factor },
    verifier: { ...task.verifier, timeout_sec: task.verifier.timeout_sec * factor },
  };
}

function refuseUnsound(dataset: Dataset): void {
  const [first] = dataset.errors;
  if (first === undefined) return;
  // A folder without tasks is a wrong word on the command line; a faulty dataset.toml is a fault of the dataset.
  throw new HarborError(first.code.startsWith("target.") ? "usage" : "task.invalid", first.message, {
    hint: first.hint ?? "name a task folder or a folder of task folders",
  });
}
