/**
 * A target → its dataset: settings, the faults of the dataset as a whole, and its tasks, loaded one at a time as they
 * are asked for, so that 10,000 tasks cost the memory of their names.
 */
import { basename, join } from "node:path";
import { lstatSync } from "node:fs";
import { sortByCodePoint } from "../files/order.ts";
import { statTarget } from "../files/tree.ts";
import { nearest } from "../suggest.ts";
import type { Target } from "../target/resolve.ts";
import { discoverTasks, type Discovery, duplicates, type Found } from "../task/discover.ts";
import { type LoadedTask, loadTask } from "../task/load.ts";
import { readTextFile } from "../task/read.ts";
import { Findings } from "../task/refusals.ts";
import type { Finding } from "../task/task.ts";
import { type DatasetSettings, NO_SETTINGS, readDatasetSettings } from "./overrides.ts";
import { type Selection, selectTasks } from "./select.ts";

export interface Dataset {
  target: Target;
  /** Absolute. */
  folder: string;
  /** Task IDs in order; duplicates are listed once. */
  ids: string[];
  /** Every task folder in order. */
  found: readonly Found[];
  /** Null when dataset.toml refuses: then no task loads. */
  settings: DatasetSettings | null;
  /** Absolute path of the dataset's verifier.py, when there is one. */
  verifier: string | null;
  /** Faults of the dataset as a whole. With one of them nothing may run. */
  errors: Finding[];
  warnings: Finding[];
  /** Loads the selected tasks, in order, lazily. Throws HarborError "usage" for a selection that matches nothing. */
  tasks(selection?: Selection): Generator<LoadedTask, void, undefined>;
}

export interface DatasetOptions {
  /** Harbor 0.25.0's verdicts instead of NeMo Gym's. */
  strict?: boolean;
}

/** Opens what a target names. Throws nothing that files on disk can cause: faults are in `errors`. */
export function openDataset(target: Target, { strict = false }: DatasetOptions = {}): Dataset {
  const findings = new Findings();
  const folder = target.datasetFolder;
  const shownAs = target.kind === "dataset" ? target.named : join(target.named, "..");
  const settings = readSettings(folder, shownAs, findings, strict);
  const errorsOfSettings = settings === null ? [...findings.errors] : [];
  const found = target.kind === "task" ? single(target) : discoverTasks(target.folder);
  const verifier = isFile(join(folder, "verifier.py")) ? join(folder, "verifier.py") : null;
  if (target.kind === "dataset") {
    sayDiscovery(found, shownAs, findings);
    if (settings !== null && !strict) sayDatasetRules(found, settings, folder, shownAs, findings);
    if (found.tasks.length === 0) sayNoTasks(settings, shownAs, findings);
  }
  const twice = duplicates(found.tasks);
  const ids = [...new Set(found.tasks.map(({ id }) => id))];
  return {
    target,
    folder,
    ids,
    found: found.tasks,
    settings,
    verifier,
    errors: findings.errors,
    warnings: findings.warnings,
    *tasks(selection = {}) {
      const selected = isWhole(selection) ? undefined : new Set(selectTasks(ids, selection));
      for (const one of found.tasks) {
        if (selected !== undefined && !selected.has(one.id)) continue;
        const first = twice.get(one.path);
        yield loadTask(target.kind === "task" ? target.folder : join(folder, one.path), {
          shownAs: target.kind === "task" ? target.named : join(target.named, one.path),
          datasetFolder: folder,
          dataset: settings,
          datasetErrors: errorsOfSettings,
          datasetVerifier: verifier,
          strict,
          linked: one.linked,
          ...(first !== undefined && { duplicateOf: join(shownAs, first) }),
        });
      }
    },
  };
}

const isWhole = ({ only = [], exclude = [] }: Selection): boolean => only.length === 0 && exclude.length === 0;

function single(target: Target): Discovery {
  const id = basename(target.folder);
  // A symlink in the path above is the user's own; only the task folder itself must be real.
  return {
    tasks: [{ id, path: id, linked: lstatSync(target.folder).isSymbolicLink() }],
    unreadable: [],
    unnamed: [],
    links: [],
  };
}

function readSettings(folder: string, shownAs: string, findings: Findings, strict: boolean): DatasetSettings | null {
  const read = readTextFile(join(folder, "dataset.toml"));
  const at = join(shownAs, "dataset.toml");
  if (read.ok && !strict) return readDatasetSettings(read.text, findings, at);
  if (read.ok) {
    // Harbor never reads [gym]; of its own tables only the listing is of use here.
    const { listed, misplacedTasks } = readDatasetSettings(read.text, new Findings(), at) ?? NO_SETTINGS;
    return { ...NO_SETTINGS, listed, misplacedTasks };
  }
  if (read.fault === "missing" || strict) return NO_SETTINGS;
  findings.add("dataset.syntax", { at, detail: read.detail }, { file: "dataset.toml" });
  return null;
}

function sayDiscovery(found: Discovery, shownAs: string, findings: Findings): void {
  for (const { path, detail } of found.unreadable) findings.add("task.unreadable", { at: join(shownAs, path), detail });
  for (const path of found.unnamed) findings.add("folder.name", { at: join(shownAs, path) });
  for (const path of found.links) findings.add("dataset.linked-folder", { at: join(shownAs, path) }, { file: path });
}

function sayDatasetRules(
  found: Discovery,
  settings: DatasetSettings,
  folder: string,
  shownAs: string,
  findings: Findings,
): void {
  const at = join(shownAs, "dataset.toml");
  const file = "dataset.toml";
  const ids = new Set(found.tasks.map(({ id }: Found) => id));
  for (const id of sortByCodePoint([...settings.overrides.keys()])) {
    if (ids.has(id)) continue;
    findings.add("dataset.override-unknown-task", { at, id, near: nearest(id, ids) }, {
      file,
      key: `gym.tasks.${JSON.stringify(id)}`,
      line: settings.lineOfOverride(id),
    });
  }
  if (settings.misplacedTasks && found.tasks.length > 0) {
    findings.add("dataset.misplaced-tasks-ignored", { at }, { file, key: "dataset.tasks" });
  }
  if (isFile(join(folder, "task_data.py"))) {
    findings.add("dataset.task-data-model", { at: join(shownAs, "task_data.py") }, { file: "task_data.py" });
  }
}

function sayNoTasks(settings: DatasetSettings | null, shownAs: string, findings: Findings): void {
  const at = join(shownAs, "dataset.toml");
  const place = { file: "dataset.toml" };
  if (settings?.misplacedTasks) findings.add("dataset.misplaced-tasks", { at }, { ...place, key: "dataset.tasks" });
  else if (settings !== null && settings.listed.size > 0) {
    findings.add(
      "dataset.listed-missing",
      { at, count: settings.listed.size, first: [...settings.listed.keys()][0]! },
      {
        ...place,
        key: "tasks",
      },
    );
  } else findings.add("target.no-tasks", { at: shownAs });
}

const isFile = (path: string): boolean => statTarget(path)?.isFile() ?? false;
