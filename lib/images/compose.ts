/** The images of a Compose task's services (images §1.3 steps 6 and 7). Pure, save for Dockerfiles that are read. */
import { type ComposePlan, type ServiceBuild, type ServiceImage, serviceImageName } from "../compose/mod.ts";
import type { Task } from "../task/task.ts";
import {
  type BuildPlan,
  hasHeredocs,
  imageName,
  mainImage,
  type Origin,
  type PlanOptions,
  type TaskImage,
} from "./plan.ts";

export const serviceRole = (service: string): string => (service === "main" ? "main" : `service:${service}`);

/** One image per service of the plan, `main` first. */
export function composeImages(task: Task, plan: ComposePlan, options: PlanOptions): TaskImage[] {
  const services = [...plan.services].sort((a, b) => Number(b.name === "main") - Number(a.name === "main"));
  return services.map(({ name, image }) => ({ role: serviceRole(name), origin: originOf(task, image, options) }));
}

function originOf(task: Task, image: ServiceImage, options: PlanOptions): Origin {
  switch (image.kind) {
    case "task":
      return mainImage(task, options).origin;
    case "reference":
      return { kind: "service", reference: image.reference };
    case "build":
      return { kind: "build", build: buildOf(task, image.service, image.build, options) };
  }
}

function buildOf(task: Task, service: string, build: ServiceBuild, { read }: PlanOptions): BuildPlan {
  const { dockerfile, context, args, target, labels, shmSize, ulimits, noCache, pull, network, cacheFrom } = build;
  const hash = task.contextHash!;
  return {
    hash,
    service,
    name: serviceImageName(imageName(hash), service),
    place: "environment",
    context,
    dockerfile,
    heredocs: hasHeredocs("path" in dockerfile ? read(dockerfile.path) ?? "" : dockerfile.inline),
    args,
    target,
    labels,
    shmSize,
    ulimits,
    noCache,
    pull,
    network,
    cacheFrom,
    timeoutSec: task.environment.build_timeout_sec,
    reason: `build of service ${service}`,
    forced: false,
  };
}
