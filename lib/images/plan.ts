/**
 * What a task needs to start from, as pure data: the loader says how the image is defined, a provider finds, pulls or
 * builds it. Every Dockerfile (pull, overlay, build) is built whole by the engine in this version.
 */
import { HarborError } from "../errors.ts";
import type { ImageNeed, Network } from "../sandbox/provider.ts";
import type { NetworkMode, Task } from "../task/task.ts";

/** Throws HarborError "not-built" for what this version cannot start (Compose, allow lists): prepare's skip reason. */
export function imageNeedOf(task: Task): ImageNeed {
  const { environment } = task;
  return {
    taskId: task.id,
    source: sourceOf(task),
    network: networkOf(environment.network_mode ?? "public"),
    limits: {
      cpus: environment.cpus,
      memoryMb: environment.memory_mb,
      storageMb: environment.storage_mb,
      gpus: environment.gpus,
    },
    users: [...new Set([task.agent.user, task.verifier.user])],
  };
}

/** Name of the image that a context hash stands for (spec/images-and-sandboxes §3.2). */
const tagOf = (contextHash: string): string => `hb__${contextHash}`;

function sourceOf(task: Task): ImageNeed["source"] {
  const { image } = task;
  switch (image.mode) {
    case "none":
      return { kind: "none" };
    case "compose":
      throw new HarborError("not-built", "not in this version: Compose");
    case "prebuilt":
      // A Dockerfile that counts beside docker_image begins from it and only sets: building it applies that.
      return image.dockerfile === undefined
        ? { kind: "named", reference: required(image.reference, task, "docker_image") }
        : builtSource(task);
    case "pull":
    case "overlay":
    case "build":
      return builtSource(task);
  }
}

function builtSource(task: Task): ImageNeed["source"] {
  const dockerfile = required(task.image.dockerfile, task, "environment/Dockerfile");
  return {
    kind: "dockerfile",
    context: dockerfile.slice(0, dockerfile.lastIndexOf("/")),
    dockerfile,
    tag: tagOf(required(task.contextHash, task, "a context hash")),
    buildTimeoutMs: task.environment.build_timeout_sec * 1000,
  };
}

function networkOf(mode: NetworkMode): Network {
  if (mode === "allowlist") throw new HarborError("not-built", "not in this version: network_mode allowlist");
  return mode;
}

function required<T>(value: T | null | undefined, task: Task, what: string): T {
  if (value === null || value === undefined) {
    throw new HarborError("task.invalid", `Cannot plan the image of ${task.id}: the task has no ${what}`, {
      hint: `gym-harbor check ${task.folder} says what it lacks`,
    });
  }
  return value;
}
