/**
 * Where the images of a task come from, as pure data (images §1.3 step 6, task-format §6.1): an image by name, a base
 * with a Dockerfile that only sets and runs, or a build of a whole context. Nothing is asked of an engine or a network.
 */
import { networkUses } from "../bundle/network_scan.ts";
import { HarborError } from "../errors.ts";
import type { ImageNeed, Network } from "../sandbox/provider.ts";
import { type Change, classifyDockerfile } from "../task/dockerfile_mode.ts";
import type { NetworkMode, Task } from "../task/task.ts";

/** What every sandbox of a task asks of its provider besides the image. Throws "not-built" for an allow list. */
export function startNeeds({ environment, agent, verifier }: Task): Omit<ImageNeed, "taskId" | "source"> {
  return {
    network: networkOf(environment.network_mode ?? "public"),
    limits: {
      cpus: environment.cpus,
      memoryMb: environment.memory_mb,
      storageMb: environment.storage_mb,
      gpus: environment.gpus,
    },
    users: [...new Set([agent.user, verifier.user])],
  };
}

function networkOf(mode: NetworkMode): Network {
  if (mode === "allowlist") throw new HarborError("not-built", "not in this version: network_mode allowlist");
  return mode;
}

/** Name of the image that a context hash stands for (images §3.2). */
export const imageName = (contextHash: string, repository?: string): string =>
  `${repository === undefined ? "" : `${repository}/`}hb__${contextHash}`;

/** Where an image comes from. */
export type Origin =
  /** Started as written; its configuration is the engine's business. */
  | { kind: "prebuilt"; reference: string }
  /** `FROM reference` and changes that need no builder. The base's configuration is recorded. */
  | { kind: "base"; reference: string; dockerfile: string; changes: Change[] }
  /** A Compose service's `image:`, recorded. */
  | { kind: "service"; reference: string }
  /** Only a builder can make it. `forced`: by builds.force alone. */
  | { kind: "build"; context: string; dockerfile: string; reason: string; forced: boolean }
  | { kind: "none" };

/** One image that a task starts. */
export interface TaskImage {
  /** `main`, `verifier`, `steps/<name>`, or a Compose service. */
  role: string;
  origin: Origin;
}

/** How the sandbox that starts the image is set up, as far as it decides how the image is made. */
interface Use {
  network: NetworkMode | undefined;
}

export interface PlanOptions {
  /** builds.force. */
  force: boolean;
  /** Text of a file of the task. */
  read: (path: string) => string;
}

/** The image of the agent's sandbox. */
export function mainImage(task: Task, options: PlanOptions): TaskImage {
  const { image } = task;
  const origin = originOf(
    {
      reference: image.mode === "pull" || image.mode === "overlay" ? undefined : image.reference,
      dockerfile: image.dockerfile,
    },
    { network: task.environment.network_mode },
    options,
  );
  return { role: "main", origin };
}

interface Definition {
  /** `docker_image`. */
  reference: string | undefined;
  /** Absolute path of a Dockerfile that counts. */
  dockerfile: string | undefined;
}

/**
 * The table of task-format §6.1, with one addition: RUN lines that fetch something are built where the sandbox has no
 * network, since at seed they could only fail.
 */
export function originOf({ reference, dockerfile }: Definition, use: Use, { force, read }: PlanOptions): Origin {
  if (dockerfile === undefined) return reference === undefined ? { kind: "none" } : { kind: "prebuilt", reference };
  const mode = classifyDockerfile(read(dockerfile));
  const context = dockerfile.slice(0, dockerfile.lastIndexOf("/"));
  if (force) {
    const forced = reference !== undefined || mode.mode !== "build";
    return { kind: "build", context, dockerfile, forced, reason: forced ? "builds.force" : mode.mode };
  }
  if (reference !== undefined) {
    const applies = mode.mode === "pull" && mode.image === reference;
    return applies ? { kind: "base", reference, dockerfile, changes: mode.changes } : { kind: "prebuilt", reference };
  }
  if (mode.mode === "build") return { kind: "build", context, dockerfile, forced: false, reason: mode.reason };
  const fetching = use.network === "no-network" ? mode.changes.find(fetches) : undefined;
  return fetching === undefined
    ? { kind: "base", reference: mode.image, dockerfile, changes: mode.changes }
    : { kind: "build", context, dockerfile, forced: false, reason: "RUN that needs a network, in a task without one" };
}

const fetches = (change: Change): boolean => change.kind === "run" && networkUses(change.command, "shell").length > 0;

/** What a sandbox on this machine's own root starts from: it applies the Dockerfile itself. */
export function imageNeedOf(task: Task): ImageNeed {
  return { taskId: task.id, source: hostSource(task), ...startNeeds(task) };
}

function hostSource(task: Task): ImageNeed["source"] {
  const { image } = task;
  switch (image.mode) {
    case "none":
      return { kind: "none" };
    case "compose":
      throw new HarborError("not-built", "not in this version: Compose");
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
