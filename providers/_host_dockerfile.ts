/**
 * Images on this machine's root: none is used. A Dockerfile's steps are applied once per context in a sandbox of their
 * own, whose writes then lie below every sandbox of the tasks that share it; where no layer can be kept (writes in
 * memory, no overlays), they are applied anew in each.
 */
import { readFileSync, statSync } from "node:fs";
import { posix } from "node:path";
import { HarborError } from "../lib/errors.ts";
import type { Emit } from "../lib/events.ts";
import type { Clock } from "../lib/runtime/clock.ts";
import type { Shared } from "../lib/runtime/pool.ts";
import { newRunId, thisOwner } from "../lib/sandbox/owner.ts";
import type { HostTree, ImageNeed, PreparedImage, Sandbox, SandboxSpec } from "../lib/sandbox/provider.ts";
import { type HostPlan, planDockerfile, type Step } from "./_host_dockerfile_plan.ts";
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

export interface BuildBox extends Sandbox {
  makeFolders(paths: readonly string[]): void;
  /** Ends it and keeps its writes as a layer; undefined where that cannot be. */
  harvest(): Promise<Layer | undefined>;
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
    await applySteps(box, plan.steps, need.taskId, deadlineMs, deps.clock, signal);
    return await box.harvest();
  } catch (error) {
    if (deps.oneId === undefined || !(error instanceof HarborError) || error.code !== "image.failed") throw error;
    // useradd and chown need more ids than one: the likeliest reason, and the one that can be mended.
    throw new HarborError("image.failed", error.message, { cause: error, hint: `${deps.oneId}; ${error.hint ?? ""}` });
  } finally {
    await box[Symbol.asyncDispose]();
  }
}

/** Applies steps in order within one deadline. Throws "image.failed" with the end of what a RUN printed. */
export async function applySteps(
  box: BuildBox,
  steps: readonly Step[],
  taskId: string,
  deadlineMs: number,
  clock: Clock,
  signal: AbortSignal,
): Promise<void> {
  const over = clock.ticks() + deadlineMs;
  for (const step of steps) {
    const leftMs = over - clock.ticks();
    if (leftMs <= 0) {
      throw new HarborError("image.failed", `${taskId}: its Dockerfile took longer than ${deadlineMs / 1000} s`);
    }
    if (step.kind === "folder") box.makeFolders([step.path]);
    else if (step.kind === "copy") await copy(box, step, leftMs, taskId, signal);
    else await run(box, step, leftMs, taskId, signal);
  }
}

async function run(
  box: Sandbox,
  step: Extract<Step, { kind: "run" }>,
  deadlineMs: number,
  taskId: string,
  signal: AbortSignal,
): Promise<void> {
  const done = await box.exec({
    run: { argv: step.argv },
    purpose: "server",
    cwd: step.cwd,
    env: step.env,
    user: step.user || "root",
    deadlineMs,
  }, signal);
  if (done.ended === "exit" && done.exitCode === 0) return;
  const why = done.ended === "deadline" ? "took longer than the build may" : `ended with exit code ${done.exitCode}`;
  const tail = `${done.stdout}\n${done.stderr}`.trim().split("\n").slice(-12).join("\n");
  throw new HarborError(
    "image.failed",
    `${taskId}: RUN of line ${step.line} of the Dockerfile ${why} on this machine\n${tail}`,
    {
      hint: "install what it needs on this machine, or choose ++sandbox.host.run=all or skip, or --sandbox podman",
    },
  );
}

async function copy(
  box: Sandbox,
  step: Extract<Step, { kind: "copy" }>,
  deadlineMs: number,
  taskId: string,
  signal: AbortSignal,
): Promise<void> {
  const doing = `${taskId}: line ${step.line} of the Dockerfile`;
  await box.exec({
    run: { argv: ["true"] },
    purpose: "server",
    user: "root",
    cwd: "/",
    deadlineMs,
    unpack: treesOf(step.files),
  }, signal);
  const paths = step.files.map(({ to }) => to);
  if (step.extract) {
    const script = 'cd -- "$(dirname -- "$1")" && tar -xf "$1" && rm -f -- "$1"';
    return await asRoot(box, { argv: ["sh", "-c", script, "sh", paths[0]!] }, deadlineMs, doing, signal);
  }
  const attributes = [
    ...(step.owner === undefined ? [] : [["chown", "-h", step.owner]]),
    ...(step.mode === undefined ? [] : [["chmod", step.mode]]),
  ];
  for (const words of attributes) {
    for (let at = 0; at < paths.length; at += 500) {
      await asRoot(box, { argv: [...words, "--", ...paths.slice(at, at + 500)] }, deadlineMs, doing, signal);
    }
  }
}

/** One upload per folder that files come from: names may differ on both sides, and kinds do not matter to it. */
export function treesOf(files: Extract<Step, { kind: "copy" }>["files"]): HostTree[] {
  const trees: HostTree[] = [];
  const byFolders = new Map<string, HostTree>();
  for (const { to, from } of files) {
    if ("data" in from) {
      trees.push({ from: "/", to: posix.dirname(to), only: [], extra: { [posix.basename(to)]: { data: from.data } } });
      continue;
    }
    if (posix.basename(to) !== posix.basename(from.path)) {
      // A new name: the file travels by its content, a folder by being made.
      if (from.kind === "folder") trees.push({ from: from.path, to, only: [] });
      else {
        const mode = modeOf(from.path);
        trees.push({
          from: "/",
          to: posix.dirname(to),
          only: [],
          extra: { [posix.basename(to)]: { data: readFileSync(from.path), mode } },
        });
      }
      continue;
    }
    const key = `${posix.dirname(from.path)}\0${posix.dirname(to)}`;
    const known = byFolders.get(key);
    if (known !== undefined) known.only!.push(posix.basename(to));
    else {
      const tree = { from: posix.dirname(from.path), to: posix.dirname(to), only: [posix.basename(to)] };
      byFolders.set(key, tree);
      trees.push(tree);
    }
  }
  return trees;
}

const modeOf = (path: string): number => statSync(path).mode & 0o7777;

async function asRoot(
  box: Sandbox,
  run: { argv: string[] },
  deadlineMs: number,
  doing: string,
  signal: AbortSignal,
): Promise<void> {
  const done = await box.exec({ run, purpose: "server", user: "root", cwd: "/", deadlineMs }, signal);
  if (done.ended === "exit" && done.exitCode === 0) return;
  throw new HarborError("image.failed", `${doing}: ${done.stderr.trim() || `exit code ${done.exitCode}`}`);
}
