/**
 * Compose tasks (spec/images-and-sandboxes §6): files → plan (readCompose), plan and images → what a group starts
 * (resolveServices). Everything else in this folder is private to these.
 */
export { type ComposeRequest, readCompose } from "./read.ts";
export {
  type ComposePlan,
  type ComposeReading,
  type ComposeService,
  type ServiceBuild,
  type ServiceImage,
  serviceImageName,
} from "./plan.ts";
export { type ResolvedGroup, type ResolvedService, resolveServices } from "./resolve.ts";
export { type GroupDeps, type GroupRequest, ServiceFailed, startGroup } from "./start.ts";
export { type StartedGroup } from "./running.ts";
export { type Probed, Unhealthy, untilHealthy } from "./health.ts";
export { boundPaths } from "./stage.ts";
