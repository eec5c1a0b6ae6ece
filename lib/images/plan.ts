/**
 * Where the images of a task come from (images §1.3 step 6, task-format §6.1): an image by name, a base with a
 * Dockerfile that only sets and runs, or a build of a whole context. Files of the task are read; nothing is asked of an
 * engine or a network.
 */
import { HarborError } from "../errors.ts";
import type { ImageNeed, Network } from "../sandbox/provider.ts";
import { type Change, classifyDockerfile } from "../task/dockerfile_mode.ts";
import { networkUses } from "../task/network_scan.ts";
import type { EnvironmentSettings, NetworkMode, Task } from "../task/task.ts";
import type { BuildRequest } from "./builder.ts";
import { usesHeredocs } from "./heredoc.ts";

/** What every sandbox of a task asks of its provider besides the image. Throws "not-built" for an allow list. */
export function startNeeds({ environment, agent, verifier, image }: Task): Omit<ImageNeed, "taskId" | "source"> {
  return {
    network: networkOf(environment.network_mode ?? "public"),
    limits: {
      cpus: environment.cpus,
      memoryMb: environment.memory_mb,
      storageMb: environment.storage_mb,
      gpus: environment.gpus,
    },
    users: [...new Set([agent.user, verifier.user])],
    ...(image.addsUser && { addsUser: image.addsUser }),
  };
}

function networkOf(mode: NetworkMode): Network {
  if (mode === "allowlist") throw new HarborError("not-built", "not in this version: network_mode allowlist");
  return mode;
}

/** Name of the image that a context hash stands for (images §3.2). */
export const imageName = (contextHash: string, repository?: string): string =>
  `${repository === undefined ? "" : `${repository}/`}hb__${contextHash}`;

/** One image that a builder makes, save its name, its time and where its log goes. */
export interface BuildPlan extends
  Pick<
    BuildRequest,
    "args" | "target" | "labels" | "shmSize" | "ulimits" | "noCache" | "pull" | "network" | "cacheFrom"
  > {
  /** Context hash of the folder that the image is named by. */
  hash: string;
  /** Compose service; `main` for an image of a task or of a verifier. */
  service: string;
  /** `hb__<hash>`, for further services `hb__<hash>__<service>`; never with a repository. */
  name: string;
  /** That folder below the task: `environment`, `tests`, `steps/<name>/tests`. */
  place: string;
  /** Absolute folder that is read. */
  context: string;
  /** Absolute path, or the text itself. */
  dockerfile: { path: string } | { inline: string };
  heredocs: boolean;
  /** `[environment].build_timeout_sec`. */
  timeoutSec: number;
  /** Why a builder is needed. */
  reason: string;
  /** By builds.force alone. */
  forced: boolean;
}

/** Where an image comes from. */
export type Origin =
  /** Started as written; its configuration is the engine's business. */
  | { kind: "prebuilt"; reference: string }
  /** `FROM reference` and changes that need no builder. The base's configuration is recorded. */
  | { kind: "base"; reference: string; dockerfile: string; changes: Change[] }
  /** A Compose service's `image:`, recorded. */
  | { kind: "service"; reference: string }
  | { kind: "build"; build: BuildPlan }
  | { kind: "none" };

/** One image that a task starts. */
export interface TaskImage {
  /** `main`, `service:<name>` of a Compose file, `verifier`, or `verifier:<step>`. */
  role: string;
  origin: Origin;
}

export interface PlanOptions {
  /** builds.force. */
  force: boolean;
  /** Text of a file; undefined where there is none. */
  read(path: string): string | undefined;
  /** Context hash of a folder; `image` names one without files. */
  hash(folder: string, image: string | undefined): string;
}

/** A folder with, perhaps, a Dockerfile, and what stands beside it in task.toml. */
interface Definition {
  /** Absolute folder, and its place below the task. */
  folder: string;
  place: string;
  environment: EnvironmentSettings;
  /** The folder's hash, where it is known. */
  hash: string | null;
}

/** The image of the agent's sandbox. */
export function mainImage(task: Task, options: PlanOptions): TaskImage {
  const definition = {
    folder: `${task.folder}/environment`,
    place: "environment",
    environment: task.environment,
    hash: task.contextHash,
  };
  return { role: "main", origin: originOf(definition, options, task.image.mode === "compose") };
}

/** Images of separate verifiers, the task's own and its steps' (task-format §5.4). */
export function verifierImages(task: Task, options: PlanOptions): TaskImage[] {
  const separate = task.verifierMode === "separate";
  const own = task.verifier.environment ?? task.environment;
  const wanted: { role: string; place: string; environment: EnvironmentSettings }[] = [];
  if (separate && task.steps.length === 0) wanted.push({ role: "verifier", place: "tests", environment: own });
  for (const { name, verifier } of task.steps) {
    const mode = verifier.environment_mode ?? (verifier.environment !== undefined ? "separate" : task.verifierMode);
    if (mode !== "separate") continue;
    const place = options.read(`${task.folder}/steps/${name}/tests/Dockerfile`) === undefined
      ? "tests"
      : `steps/${name}/tests`;
    wanted.push({ role: `verifier:${name}`, place, environment: verifier.environment ?? own });
  }
  return wanted.map(({ role, place, environment }) => {
    const definition = { folder: `${task.folder}/${place}`, place, environment, hash: null };
    return { role, origin: originOf(definition, options, false) };
  });
}

/**
 * The table of task-format §6.1, with one addition: RUN lines that fetch something are built where the sandbox has no
 * network, since at seed they could only fail.
 */
function originOf(definition: Definition, options: PlanOptions, inGroup: boolean): Origin {
  const { folder, environment: { docker_image: reference, network_mode } } = definition;
  const dockerfile = `${folder}/Dockerfile`;
  const text = options.read(dockerfile);
  if (text === undefined) {
    if (reference === undefined) return { kind: "none" };
    return { kind: inGroup ? "service" : "prebuilt", reference };
  }
  const mode = classifyDockerfile(text);
  const built = (reason: string, forced = false): Origin => ({
    kind: "build",
    build: planOfDockerfile(definition, { path: dockerfile, text, reason, forced }, options),
  });
  if (options.force) {
    const forced = reference !== undefined || mode.mode !== "build";
    return built(mode.mode === "build" ? mode.reason : "builds.force", forced);
  }
  if (reference !== undefined) {
    if (mode.mode === "pull" && mode.image === reference) {
      return { kind: "base", reference, dockerfile, changes: mode.changes };
    }
    return { kind: inGroup ? "service" : "prebuilt", reference };
  }
  if (mode.mode === "build") return built(mode.reason);
  if (network_mode === "no-network" && mode.changes.some(fetches)) {
    return built("RUN that needs a network, in a task without one");
  }
  return { kind: "base", reference: mode.image, dockerfile, changes: mode.changes };
}

const fetches = (change: Change): boolean => change.kind === "run" && networkUses(change.command, "shell").length > 0;

function planOfDockerfile(
  { folder, place, environment, hash: known }: Definition,
  { path, text, reason, forced }: { path: string; text: string; reason: string; forced: boolean },
  { hash }: PlanOptions,
): BuildPlan {
  const contextHash = known ?? hash(folder, environment.docker_image);
  return {
    hash: contextHash,
    service: "main",
    name: imageName(contextHash),
    place,
    context: folder,
    dockerfile: { path },
    heredocs: usesHeredocs(text),
    args: {},
    timeoutSec: environment.build_timeout_sec,
    reason,
    forced,
  };
}

/** What a sandbox on this machine's own root starts from: it applies the Dockerfile itself. */
export function imageNeedOf(task: Task): ImageNeed {
  return { taskId: task.id, source: hostSource(task), ...startNeeds(task) };
}

function hostSource(task: Task): ImageNeed["source"] {
  const { image } = task;
  switch (image.mode) {
    case "none":
      return { kind: "none" };
    case "compose": // its main alone
      if (image.reference === undefined) {
        return image.dockerfile === undefined ? { kind: "none" } : dockerfileSource(task);
      }
      return { kind: "named", reference: image.reference };
    case "prebuilt":
      return image.dockerfile === undefined
        ? { kind: "named", reference: required(image.reference, task, "docker_image") }
        : dockerfileSource(task);
    case "pull":
    case "overlay":
    case "build":
      return dockerfileSource(task);
  }
}

function dockerfileSource(task: Task): ImageNeed["source"] {
  const dockerfile = required(task.image.dockerfile, task, "environment/Dockerfile");
  return {
    kind: "dockerfile",
    context: dockerfile.slice(0, dockerfile.lastIndexOf("/")),
    dockerfile,
    tag: imageName(required(task.contextHash, task, "a context hash")),
    buildTimeoutMs: task.environment.build_timeout_sec * 1000,
  };
}

function required<T>(value: T | null | undefined, task: Task, what: string): T {
  if (value === null || value === undefined) {
    throw new HarborError("task.invalid", `Cannot plan the image of ${task.id}: the task has no ${what}`, {
      hint: `gym-harbor check ${task.folder} says what it lacks`,
    });
  }
  return value;
}
