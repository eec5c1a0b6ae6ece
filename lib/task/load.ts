/**
 * A task folder → a `Task`, or every reason why it is none. Reads, hashes and checks; writes nothing, starts nothing.
 *
 * The verdict is NeMo Gym's (task-format §7); `strict` gives Harbor 0.25.0's instead (spec/decisions 13). Synchronous:
 * a warm task is loaded faster than a promise is settled, and a dataset of any size keeps one task in memory.
 */
import { basename, dirname, relative } from "node:path";
import { HarborError } from "../errors.ts";
import { FileReader } from "../digest/reader.ts";
import { hashTask, type TaskHashes } from "../digest/task.ts";
import { TaskTree } from "../digest/tree.ts";
import { type DatasetSettings, NO_SETTINGS, withOverride } from "../dataset/overrides.ts";
import { collisions, effectiveArtifacts } from "./artifacts.ts";
import { agentSettings, environmentSettings, stepSettings, verifierMode, verifierSettings } from "./effective.ts";
import { TaskFiles } from "./files.ts";
import { checkStepGrader, taskGrader } from "./graders.ts";
import { imagePlan } from "./image.ts";
import { Findings } from "./refusals.ts";
import { readTextFile } from "./read.ts";
import type { TaskToml } from "./schema.ts";
import { readSettings, type Settings } from "./settings.ts";
import type { Artifact, Finding, ImagePlan, StepSettings, Task } from "./task.ts";

export interface LoadOptions {
  /** The folder as messages name it. Default: the folder itself. */
  shownAs?: string;
  /** Absolute dataset folder. Default: the task's parent. */
  datasetFolder?: string;
  /** dataset.toml of that folder; null when it refuses, and then the task does not load. */
  dataset?: DatasetSettings | null;
  /** Why `dataset` is null. */
  datasetErrors?: readonly Finding[];
  /** Absolute path of the dataset's verifier.py, when there is one. */
  datasetVerifier?: string | null;
  /** Harbor 0.25.0's verdict. */
  strict?: boolean;
  /** The folder is a symbolic link, or shares its name with another (discover.ts knows). */
  linked?: boolean;
  /** Where the other task folder of this name lies. */
  duplicateOf?: string;
}

export interface LoadedTask {
  id: string;
  folder: string;
  shownAs: string;
  /** Null exactly when `errors` is not empty. */
  task: Task | null;
  errors: Finding[];
  warnings: Finding[];
  mode: ImagePlan["mode"];
  /** Number of `[[steps]]`. */
  steps: number;
  /** What can be computed, also for a task that does not load. */
  hashes: TaskHashes;
  /** Non-default values of task.toml, null when it was refused. */
  resolved(): Record<string, unknown> | null;
}

/** Loads one folder. Throws nothing that a folder on disk can cause. */
export function loadTask(folder: string, options: LoadOptions = {}): LoadedTask {
  const { shownAs = folder, strict = false } = options;
  const findings = new Findings();
  const tree = new TaskTree(folder);
  const reader = new FileReader();
  const draft: Draft = { settings: null, config: null, image: { mode: "none", uploads: false }, task: null };
  try {
    if (options.linked && !strict) findings.add("task.symlink", { at: shownAs });
    if (options.duplicateOf !== undefined && !strict) {
      findings.add("task.duplicate-id", { id: basename(folder), first: options.duplicateOf, second: shownAs });
    }
    if (options.dataset === null) findings.errors.push(...options.datasetErrors ?? []);
    fill(draft, new TaskFiles(tree, reader, shownAs, findings, strict), options);
  } catch (error) {
    if (!(error instanceof HarborError)) throw error;
    // An invalid .harborignore is met again by whoever asks it; it was named where it was read.
    if (!findings.errors.some((one) => one.code === "harborignore.invalid")) {
      findings.add("folder.unreadable", { at: shownAs, detail: error.message, hint: error.hint });
    }
  }
  const hashes = hashTask(tree, { reader, dockerImage: draft.config?.environment?.docker_image || undefined });
  if (!strict && findings.errors.length === 0) {
    for (const problem of hashes.problems.filter((one) => one.hash === "task_digest")) {
      findings.add("digest.failed", { at: shownAs, detail: problem.message, hint: problem.hint });
    }
  }
  sayOtherDigest(draft.config, hashes.package_hash, findings, options);
  const failed = findings.errors.length > 0;
  return {
    id: basename(folder),
    folder,
    shownAs,
    task: failed || draft.task === null
      ? null
      : { ...draft.task, contextHash: hashes.context_hash, warnings: findings.warnings },
    errors: findings.errors,
    warnings: findings.warnings,
    mode: draft.image.mode,
    steps: draft.config?.steps?.length ?? 0,
    hashes,
    resolved: () => draft.settings?.resolved() ?? null,
  };
}

interface Draft {
  settings: Settings | null;
  config: TaskToml | null;
  image: ImagePlan;
  task: Task | null;
}

function fill(draft: Draft, files: TaskFiles, options: LoadOptions): void {
  const { dataset = NO_SETTINGS, datasetVerifier = null } = options;
  const { tree, findings, shownAs, strict } = files;
  const id = basename(tree.folder);
  if (!files.has("task.toml")) return findings.add("task.no-toml", { at: shownAs });
  if (!strict && files.has("tasks.jsonl")) findings.add("task.template", { at: shownAs }, { file: "tasks.jsonl" });
  const settings = draft.settings = readToml(files);
  if (settings === null) {
    files.checkLinks([]);
    return;
  }
  const override = dataset?.overrides.get(id);
  const config = draft.config = withOverride(settings.config, override);
  const multipliers = dataset?.multipliers ?? NO_SETTINGS.multipliers;
  const stepped = config.steps ?? [];
  files.checkLinks(stepped.map((step) => step.name));
  const environment = environmentSettings(config.environment, multipliers);
  draft.image = imagePlan(id, environment.docker_image, files, strict);
  const verifier = verifierSettings(config.verifier, multipliers, override?.verifier?.inputs);
  const isStepped = stepped.length > 0;
  const instruction = isStepped ? "" : files.instruction("instruction.md");
  const grader = isStepped ? null : taskGrader(files, config, datasetVerifier);
  const steps = stepped.map((step): StepSettings => {
    const found = files.step(step.name);
    if (found !== null) checkStepGrader(files, step, config);
    return { ...stepSettings(step, config, multipliers), ...found ?? { instruction: "", solution: null } };
  });
  sayOddities(files, config);
  if (verifier.inputs.length > 0 && draft.image.mode !== "compose") {
    findings.add("dataset.inputs-without-compose", { at: dataset!.shownAs, id }, { file: "dataset.toml" });
  }
  draft.task = {
    id,
    folder: tree.folder,
    datasetFolder: options.datasetFolder ?? dirname(tree.folder),
    relativePath: options.datasetFolder === undefined ? id : relative(options.datasetFolder, tree.folder),
    agent: agentSettings(config.agent, multipliers),
    environment,
    verifier,
    solutionEnv: config.solution?.env ?? {},
    artifacts: effectiveArtifacts(config.artifacts ?? []),
    multi_step_reward_strategy: config.multi_step_reward_strategy ?? "mean",
    instruction,
    steps,
    grader,
    solution: files.solution("solution"),
    taskData: files.taskData(),
    image: draft.image,
    verifierMode: verifierMode(config.verifier) ?? "shared",
    contextHash: null,
    warnings: findings.warnings,
  };
}

function readToml({ tree, reader, findings, shownAs, strict }: TaskFiles): Settings | null {
  const at = `${shownAs}/task.toml`;
  const text = readTextFile(tree.at("task.toml"), reader);
  if (text.ok) return readSettings(text.text, findings, { strict, shownAs: at });
  findings.add(text.fault === "encoding" ? "toml.encoding" : "task.unreadable", { at, detail: text.detail }, {
    file: "task.toml",
  });
  return null;
}

/** What is odd about a task that loads. */
function sayOddities(files: TaskFiles, config: TaskToml): void {
  if (files.has("trajectory.json")) files.say("trajectory.ignored", "trajectory.json", {});
  const ofTask = config.artifacts ?? [];
  const ofTurns = [ofTask, ...(config.steps ?? []).map((step) => [...ofTask, ...step.artifacts ?? []])];
  if (verifierMode(config.verifier) === "separate" && ofTurns.every((one) => one.length === 0)) {
    files.say("separate.no-artifacts", "task.toml", {});
  }
  const name = ({ service, source }: Artifact): string => service === "main" ? source : `${service}:${source}`;
  for (const [first, second] of ofTurns.flatMap((one) => collisions(effectiveArtifacts(one)))) {
    files.say("artifact.overlap", "task.toml", { first: name(first), second: name(second) });
  }
}

const SHOWN_DIGITS = 12;

/** D17: what Harbor's `[[tasks]]` says about the folder's bytes. Local folders change, so it is a note. */
function sayOtherDigest(config: TaskToml | null, found: string | null, findings: Findings, options: LoadOptions): void {
  const name = config?.task?.name;
  const listed = typeof name === "string" ? options.dataset?.listed.get(name) : undefined;
  if (!listed || found === null || listed === found) return;
  findings.add("dataset.digest-differs", {
    at: options.dataset!.shownAs,
    name: String(name),
    listed: listed.slice(0, SHOWN_DIGITS),
    found: found.slice(0, SHOWN_DIGITS),
  });
}
