/**
 * A Compose task in an episode: how its file changes main's sandbox, the group that is opened around it, and what is
 * looked at before the group goes. A file that asks for nothing beyond main opens a plain sandbox (images §6.6).
 */
import { join } from "node:path";
import {
  type ComposePlan,
  type GroupDeps,
  type ResolvedGroup,
  type ResolvedService,
  ServiceFailed,
  type StartedGroup,
  startGroup,
  Unhealthy,
  untilHealthy,
} from "../compose/mod.ts";
import type { Clock } from "../runtime/clock.ts";
import type { PreparedImage, Sandbox, SandboxSpec } from "../sandbox/provider.ts";
import type { TaskCopy } from "./copies.ts";
import { EpisodeFailure } from "./failures.ts";
import { captureKey, type EpisodePlan } from "./plan.ts";
import type { EpisodeDeps } from "./run.ts";

/** A Compose file with the images of its services. */
export interface ComposeStart {
  plan: ComposePlan;
  group: ResolvedGroup;
}

export const mainOf = ({ group }: ComposeStart): ResolvedService => group.services.find(({ name }) => name === "main")!;

/** The image as main's keys change it: they stand above the image's own, and below what task.toml says. */
export function asMain(image: PreparedImage, start: ComposeStart): PreparedImage {
  const { workdir = image.workdir, user = image.user, env } = mainOf(start);
  return { ...image, workdir, user, declared: { ...image.declared, ...env } };
}

/** What of main's sandbox the file decides where task.toml says nothing. */
export function mainSpec(spec: SandboxSpec, start: ComposeStart): SandboxSpec {
  const { workdir, user, limits, member } = mainOf(start);
  const isCut = start.plan.network !== undefined || (!start.plan.needsGroup && member.noNetwork === true);
  return {
    ...spec,
    workdir: spec.workdir ?? workdir,
    user: spec.user ?? user,
    limits: { ...spec.limits, ...limits },
    ...(isCut && { network: "no-network" as const }),
  };
}

/** The agent's sandbox, and whoever is around it. */
export interface Opened extends AsyncDisposable {
  box: Sandbox;
  group: StartedGroup | null;
}

interface OpenRequest {
  plan: EpisodePlan;
  spec: SandboxSpec;
  start: ComposeStart | null;
  copy: TaskCopy;
  /** Where the sidecars' output goes, below the episode's own folder of logs. */
  logs: string;
}

/** Opens one sandbox, or a whole group. Throws what opening one throws; EpisodeFailure (seed) for a service that fails. */
export async function openTask(request: OpenRequest, deps: EpisodeDeps, signal: AbortSignal): Promise<Opened> {
  const { plan, spec, start, copy, logs } = request;
  const { provider, clock, startGate: gate, settings } = deps;
  if (start === null || !start.plan.needsGroup) {
    const box = await provider.open(spec, signal);
    return { box, group: null, [Symbol.asyncDispose]: () => Promise.resolve(box[Symbol.asyncDispose]()) };
  }
  const openGroup: GroupDeps["openGroup"] = (groupSpec, asking) => provider.openGroup!(groupSpec, asking);
  const scratch = join(deps.scratch, `group-${captureKey(plan)}`);
  const wanted = {
    group: start.group,
    main: spec,
    sandboxEnv: settings.sandbox_env,
    mounted: copy.mounted,
    scratch,
    logs,
  };
  try {
    const group = await startGroup(wanted, { openGroup, clock, gate }, signal);
    return { box: group.main, group, [Symbol.asyncDispose]: () => Promise.resolve(group[Symbol.asyncDispose]()) };
  } catch (error) {
    if (!(error instanceof ServiceFailed)) throw error;
    const message = `Could not set up sandbox for '${plan.task.id}': ${error.message}`;
    throw new EpisodeFailure(message, { stage: "seed", kind: null, terminal: false, cause: error });
  }
}

/** Waits for main's own health check, once what it runs was started. */
export async function awaitMain(start: ComposeStart, box: Sandbox, clock: Clock, signal: AbortSignal): Promise<void> {
  const { healthcheck, user } = mainOf(start);
  if (healthcheck === null) return;
  const asUser: Pick<Sandbox, "exec"> = {
    exec: (command, asking) => box.exec({ ...command, ...(user !== undefined && { user }) }, asking),
  };
  try {
    await untilHealthy(healthcheck, asUser, clock, signal);
  } catch (error) {
    if (!(error instanceof Unhealthy)) throw error;
    throw new EpisodeFailure(`service 'main' ${error.message}`, { stage: "seed", kind: null, terminal: false });
  }
}
