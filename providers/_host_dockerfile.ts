/**
 * Images on this machine's root: none is used. A Dockerfile's steps are applied once per context in a sandbox of their
 * own, whose writes then lie below every sandbox of the tasks that share it; where no layer can be kept (writes in
 * memory, no overlays), they are applied anew in each.
 */
import { readFileSync } from "node:fs";
import { HarborError } from "../lib/errors.ts";
import type { Emit } from "../lib/events.ts";
import type { Clock } from "../lib/runtime/clock.ts";
import type { Shared } from "../lib/runtime/pool.ts";
import { newRunId, thisOwner } from "../lib/sandbox/owner.ts";
import type { ImageNeed, PreparedImage, SandboxSpec } from "../lib/sandbox/provider.ts";
import type { Step } from "./_build_plan.ts";
import { type ApplyRequest, applySteps, type BuildBox } from "./_build_steps.ts";
import { type HostPlan, planDockerfile } from "./_host_dockerfile_plan.ts";
import type { Layer } from "./_namespace_mounts.ts";

/** What the provider keeps of a prepared image. */
export interface HostImage {
  layers: Layer[];
  /** Steps to apply in each sandbox, where they could not be kept as a layer. */
  steps: Step[];
  deadlineMs: number;
}

export interface ApplyDeps {
  mode: "all" | "no-install" | "skip";
  shared: Shared<unknown>;
  clock: Clock;
  emit: Emit;
  /** Why commands can run as root alone here, where that is so. */
  oneId: string | undefined;
  /** Opens a sandbox to build in. */
  open(spec: SandboxSpec): Promise<BuildBox>;
}

/** Throws "task.unsupported" and "image.failed" by the instruction. */
export async function prepareImage(need: ImageNeed, deps: ApplyDeps, signal: AbortSignal): Promise<PreparedImage> {
  const { source } = need;
  if (source.kind !== "dockerfile") {
    const notes = source.kind === "named" ? [`image: ${source.reference} is not used, this machine's own root is`] : [];
    return imageOf({ steps: [], workdir: "/", env: {}, user: "", entrypoint: [], notes }, {
      layers: [],
      steps: [],
      deadlineMs: 0,
    });
  }
  const plan = planDockerfile({
    taskId: need.taskId,
    text: readFileSync(source.dockerfile, "utf8"),
    context: source.context,
    run: deps.mode,
  });
  const deadlineMs = source.buildTimeoutMs;
  // Folders alone (WORKDIR) are made faster anew than by a layer.
  if (plan.steps.every(({ kind }) => kind === "folder")) {
    return imageOf(plan, { layers: [], steps: plan.steps, deadlineMs });
  }
  const key = `layer ${source.tag} ${source.context}`;
  const layer =
    await (deps.shared.get(key, () => build(need, plan, deadlineMs, deps, signal)) as Promise<Layer | undefined>);
  return imageOf(
    plan,
    layer === undefined ? { layers: [], steps: plan.steps, deadlineMs } : { layers: [layer], steps: [], deadlineMs },
  );
}

function imageOf(plan: HostPlan, handle: HostImage): PreparedImage {
  const { workdir, env, user, entrypoint, notes } = plan;
  return { reference: "host", workdir, env, user, entrypoint, notes, handle };
}

async function build(
  need: ImageNeed,
  plan: HostPlan,
  deadlineMs: number,
  deps: ApplyDeps,
  signal: AbortSignal,
): Promise<Layer | undefined> {
  const box = await deps.open({
    image: imageOf({ ...plan, steps: [], notes: [], user: "", workdir: "/", env: {} }, {
      layers: [],
      steps: [],
      deadlineMs,
    }),
    owner: thisOwner(newRunId()),
    episode: `image-${need.taskId}`.slice(0, 60),
    role: "agent",
    env: {},
    workdir: "/",
    user: "root",
    network: plan.steps.some(({ kind }) => kind === "run") ? "public" : "no-network",
    limits: {},
    ttlMs: deadlineMs + 600_000,
    readyTimeoutMs: 60_000,
  });
  try {
    await applySteps(box, plan.steps, applyRequest(need.taskId, deadlineMs, deps.clock), signal);
    return await box.harvest();
  } catch (error) {
    if (deps.oneId === undefined || !(error instanceof HarborError) || error.code !== "image.failed") throw error;
    // useradd and chown need more ids than one: the likeliest reason, and the one that can be mended.
    throw new HarborError("image.failed", error.message, { cause: error, hint: `${deps.oneId}; ${error.hint ?? ""}` });
  } finally {
    await box[Symbol.asyncDispose]();
  }
}

/** How a failing step of a task on this machine's root is told. */
export const applyRequest = (taskId: string, deadlineMs: number, clock: Clock): ApplyRequest => ({
  taskId,
  where: "on this machine",
  hint: "install what it needs on this machine, or choose ++sandbox.host.run=all or skip, or --sandbox podman",
  deadlineMs,
  clock,
});
