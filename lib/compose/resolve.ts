/**
 * A plan and its images → what a group is asked to start: argv, environment and health check of every service, the file's
 * values over the image's. Pure; the same function serves prepare (whose refusals it gives) and seed.
 */
import { HarborError } from "../errors.ts";
import type { MemberSpec, ServiceSpec } from "../sandbox/group.ts";
import type { Limits, PreparedImage } from "../sandbox/provider.ts";
import { KEEP_ALIVE } from "./base.ts";
import { healthcheckOf } from "./healthcheck.ts";
import type { ComposePlan, ComposeService, Dependency, Healthcheck, PlannedMount } from "./plan.ts";
import { Refusals } from "./refusals.ts";

/** What a group starts for one service, before its files are staged and its episode is known. */
export interface ResolvedService {
  name: string;
  image: PreparedImage;
  member: Omit<MemberSpec, "mounts">;
  mounts: PlannedMount[];
  dependsOn: Dependency[];
  healthcheck: Healthcheck | null;
  /** Over the image's own. */
  env: Record<string, string>;
  workdir?: string;
  user?: string;
  limits: Limits;
  /**
   * Entrypoint and command. Of a sidecar never empty. Of `main` what has to run in the background beside the agent; null
   * when it is only kept alive and its image's ENTRYPOINT is started as for any other task; empty: not even that.
   */
  argv: string[] | null;
  stop: Pick<ServiceSpec, "stopSignal" | "stopGraceMs">;
}

export interface ResolvedGroup {
  /** In start order, `main` among them. */
  services: ResolvedService[];
  volumes: string[];
}

/** Throws HarborError "task.unsupported" with the whole refusal. `images`: by service name, every one of the plan's. */
export function resolveServices(plan: ComposePlan, images: Readonly<Record<string, PreparedImage>>): ResolvedGroup {
  const refusals = new Refusals();
  const services = plan.services.map((service) => resolve(service, images[service.name]!, refusals));
  const byName = new Map(services.map((service) => [service.name, service]));
  for (const { name, dependsOn } of services) {
    for (const { service, condition } of dependsOn) {
      if (condition === "service_healthy" && byName.get(service)?.healthcheck === null) {
        refusals.add(
          name,
          `depends_on.${service}`,
          "waits for service_healthy, but neither file nor image has a healthcheck",
        );
      }
    }
  }
  if (refusals.any) throw new HarborError("task.unsupported", refusals.text(plan.taken));
  return { services, volumes: plan.volumes };
}

function resolve(service: ComposeService, image: PreparedImage, refusals: Refusals): ResolvedService {
  const { name } = service;
  return {
    name,
    image,
    member: memberOf(service),
    mounts: service.mounts,
    dependsOn: service.dependsOn,
    healthcheck: healthcheckOf(service.healthcheck, image.config),
    env: service.environment,
    ...defined("workdir", service.workdir),
    ...defined("user", service.user),
    limits: service.limits,
    argv: name === "main" ? mainArgv(service, image) : sidecarArgv(service, image, refusals),
    stop: { ...defined("stopSignal", service.stopSignal), ...defined("stopGraceMs", service.stopGraceMs) },
  };
}

function memberOf(service: ComposeService): Omit<MemberSpec, "mounts"> {
  return {
    service: service.name,
    aliases: service.aliases,
    ...defined("networkOf", service.networkOf),
    ...(service.noNetwork && { noNetwork: true }),
    extraHosts: service.extraHosts,
    capAdd: service.capAdd,
    capDrop: service.capDrop,
    noNewPrivileges: service.noNewPrivileges,
    ...defined("hostname", service.hostname),
    ...defined("shmBytes", service.shmBytes),
    ulimits: service.ulimits,
    ...defined("init", service.init),
    ...(service.readOnly && { readOnly: true }),
  };
}

/** An entrypoint of the file's own clears the image's command. */
function sidecarArgv(
  { name, entrypoint, command }: ComposeService,
  image: PreparedImage,
  refusals: Refusals,
): string[] {
  const own = command ?? (entrypoint === undefined ? image.config?.Cmd ?? [] : []);
  const argv = [...entrypoint ?? image.entrypoint, ...own];
  if (argv.length === 0) refusals.add(name, "command", "is missing, and the image has neither ENTRYPOINT nor CMD");
  return argv;
}

function mainArgv({ entrypoint, command = KEEP_ALIVE }: ComposeService, image: PreparedImage): string[] | null {
  const own = isIdle(command) ? [] : command;
  if (entrypoint === undefined) return own.length === 0 ? null : [...image.entrypoint, ...own];
  if (entrypoint.length === 0 && own.length === 0) return [];
  return isIdle(entrypoint) && own.length === 0 ? [] : [...entrypoint, ...own.length === 0 ? command : own];
}

/** Commands that do nothing but keep a container alive: our own does that. */
function isIdle(words: readonly string[]): boolean {
  const text = words.join(" ");
  return /^(?:(?:\/bin\/|\/usr\/bin\/)?(?:ba|da|a)?sh -l?c )?(?:exec )?(?:sleep (?:infinity|inf|\d{4,}d?)|tail -f \/dev\/null)$/
    .test(text);
}

const defined = <K extends string, T>(key: K, value: T | undefined): { [key in K]?: T } =>
  (value === undefined ? {} : { [key]: value }) as { [key in K]?: T };
