/** Where a service's image comes from, with all services in view: the task's own, a build, or a reference. Pure. */
import type { ServiceBuild, ServiceImage } from "./plan.ts";
import type { ComposeRequest } from "./read.ts";
import type { Refusals } from "./refusals.ts";
import type { ServiceDraft } from "./service.ts";

/** An image that another service builds is that one's; the task's own stands under its name. */
export function imageOf(
  draft: ServiceDraft,
  drafts: readonly ServiceDraft[],
  { task, taskImage }: ComposeRequest,
  refusals: Refusals,
): ServiceImage {
  const { name, reference, build } = draft;
  if (name === "main" && isTasksOwn(draft, task, taskImage)) return { kind: "task" };
  if (build === null) return { kind: "task" }; // its section was refused
  if (build !== undefined) return { kind: "build", service: name, build };
  if (reference === taskImage) return { kind: "task" };
  if (reference === undefined) {
    refusals.add(name, "image", "is missing: a sidecar needs image or build");
    return { kind: "task" };
  }
  const maker = drafts.find((one) => one.build && one.reference === reference);
  if (maker !== undefined) return { kind: "build", service: maker.name, build: maker.build! };
  return { kind: "reference", reference, ...(draft.platform !== undefined && { platform: draft.platform }) };
}

/**
 * Whether main is what the task itself defines. docker_image counts unless the file names another image; an
 * environment/Dockerfile counts unless the file builds something else (Harbor's base document builds it whatever the
 * image is called).
 */
function isTasksOwn({ reference, build }: ServiceDraft, task: ComposeRequest["task"], taskImage: string): boolean {
  const { docker_image } = task.environment;
  if (docker_image !== undefined) return reference === undefined || [docker_image, taskImage].includes(reference);
  if (build === null) return false;
  if (build !== undefined) return isPlain(build, `${task.folder}/environment`);
  return reference === taskImage || task.image.dockerfile !== undefined;
}

/** A build of environment/Dockerfile as it is. */
function isPlain(
  { context, dockerfile, args, target, labels, shmSize, ulimits, network }: ServiceBuild,
  environment: string,
) {
  return context === environment && "path" in dockerfile && dockerfile.path === `${environment}/Dockerfile` &&
    target === undefined && network === undefined && shmSize === undefined &&
    [args, labels, ulimits].every((one) => Object.keys(one).length === 0);
}
