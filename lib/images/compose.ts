/** The images of a Compose task's services (images §1.3 steps 6 and 7). Pure, save for Dockerfiles that are read. */
import { type ComposePlan, type ServiceBuild, type ServiceImage, serviceImageName } from "../compose/mod.ts";
import type { Task } from "../task/task.ts";
import { type BuildPlan, imageName, mainImage, type Origin, type PlanOptions, type TaskImage } from "./plan.ts";
import { usesHeredocs } from "./heredoc.ts";

export const serviceRole = (service: string): string => (service === "main" ? "main" : `service:${service}`);

/** One image per service of the plan, `main` first. */
export function composeImages(task: Task, plan: ComposePlan, options: PlanOptions): TaskImage[] {
  const services = [...plan.services].sort((a, b) => Number(b.name === "main") - Number(a.name === "main"));
  const isShared = services.some(({ name, image }) => name !== "main" && image.kind === "task");
  const own = isShared ? sharedOrigin(task, options) : mainImage(task, options).origin;
  return services.map(({ name, image }) => ({ role: serviceRole(name), origin: originOf(task, image, own, options) }));
}

/** The task's image where a sidecar starts from it as well: nobody applies RUN lines in a sidecar, so they are built. */
function sharedOrigin(task: Task, options: PlanOptions): Origin {
  const { origin } = mainImage(task, options);
  if (origin.kind !== "base" || !origin.changes.some(({ kind }) => kind === "run")) return origin;
  const built = mainImage(task, { ...options, force: true }).origin;
  if (built.kind !== "build") return built;
  return { kind: "build", build: { ...built.build, forced: false, reason: "RUN in the image of a sidecar" } };
}

function originOf(task: Task, image: ServiceImage, own: Origin, options: PlanOptions): Origin {
  switch (image.kind) {
    case "task":
      return own;
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
    heredocs: usesHeredocs("path" in dockerfile ? read(dockerfile.path) ?? "" : dockerfile.inline),
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
