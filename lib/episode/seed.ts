/**
 * Seeding (episodes §3.2): what a sandbox is started from, and what is done in it before the agent. The log folders are
 * made in the same call as the start; most tasks need nothing more.
 */
import { HarborError } from "../errors.ts";
import { ending } from "../excerpt.ts";
import { startNeeds } from "../images/plan.ts";
import { OURS, seedText } from "../verifier/stage.ts";
import type { Running, SandboxSpec } from "../sandbox/provider.ts";
import { refuseVariables } from "../sandbox/variables.ts";
import { missingVariables, resolveTemplates } from "../task/env.ts";
import type { Task } from "../task/task.ts";
import { asMain, awaitMain, mainOf, mainSpec } from "./compose.ts";
import { EpisodeFailure } from "./failures.ts";
import { awaitHealthy, entrypointArgv, failedEntrypoint, startEntrypoint } from "./health.ts";
import { budgetSec, captureKey, type EpisodePlan } from "./plan.ts";
import { BEFORE_OVERLAY } from "./overlay.ts";
import type { Attempt, EpisodeDeps, State } from "./run.ts";

/** Image, environment and limits of the sandbox; throws what seeding a row may fail with. */
export async function seedSpec(
  plan: EpisodePlan,
  deps: EpisodeDeps,
  state: State,
  signal: AbortSignal,
): Promise<SandboxSpec> {
  const { task } = plan;
  const { settings } = deps;
  const tables = {
    "environment.env": task.environment.env,
    "verifier.env": task.verifier.env,
    ...(deps.agent.needsSolution && { "solution.env": task.solutionEnv }),
  };
  const missing = new Set(Object.values(tables).flatMap((table) => missingVariables(table, deps.hostEnv)));
  if (missing.size > 0) {
    const message = `Could not set up sandbox for '${task.id}': ${[...missing].join(", ")} not set on this machine`;
    throw new EpisodeFailure(message, { stage: "seed", kind: null, terminal: false });
  }
  for (const [where, table] of Object.entries(tables)) {
    refuseVariables(resolveTemplates(table, deps.hostEnv, where), where);
  }
  const start = deps.composeOf(task);
  const prepared = await setUp(task, () => deps.imageOf(task, signal));
  const image = start === null ? prepared : asMain(prepared, start);
  state.image = image;
  state.notes.push(...start?.plan.notes ?? []);
  const { environment } = task;
  const { network, limits } = startNeeds(task);
  const lifetimeSec = (budgetSec(task, settings) ?? settings.default_episode_timeout_seconds) +
    settings.sandbox_ttl_slack_s + (image.overlay === undefined ? 0 : environment.build_timeout_sec);
  const spec: SandboxSpec = {
    image,
    owner: deps.owner,
    episode: captureKey(plan),
    role: "agent",
    env: {
      ...settings.sandbox_env,
      ...image.declared,
      ...resolveTemplates(environment.env, deps.hostEnv, "environment.env"),
    },
    ...(image.overlay === undefined ? { workdir: environment.workdir, user: task.agent.user } : BEFORE_OVERLAY),
    network,
    limits,
    ttlMs: lifetimeSec * 1000,
    readyTimeoutMs: settings.sandbox_ready_timeout_s * 1000,
    setup: seedText(),
    hide: deps.hide,
    keepable: deps.keepFailed,
  };
  return start === null ? spec : mainSpec(spec, start);
}

/** Names the boundary as rows word it. */
async function setUp<T>(task: Task, step: () => Promise<T>): Promise<T> {
  try {
    return await step();
  } catch (error) {
    if (!(error instanceof HarborError) || error.code === "aborted") throw error;
    throw new HarborError(error.code, `Could not set up sandbox for '${task.id}': ${error.message}`, {
      hint: error.hint,
      details: error.details,
      cause: error,
    });
  }
}

/** What seeding leaves for after the start: uploads, the operator's commands, ENTRYPOINT, health. Most tasks have none. */
export async function finishSeed(
  { plan: { task }, copy, deps: { settings, clock }, image, box, start }: Attempt,
  signal: AbortSignal,
): Promise<Running | null> {
  const deadlineMs = settings.sandbox_setup_timeout_s * 1000;
  const unpack = [
    ...(copy.uploads === null ? [] : [{ from: copy.uploads, to: box.workdir }]),
    ...toolFile(task),
  ];
  if (unpack.length > 0) {
    await box.exec({ run: { script: "true" }, purpose: "server", user: "root", deadlineMs, unpack }, signal);
  }
  for (const command of settings.sandbox_setup_commands) {
    const run = { script: command };
    const done = await box.exec({ run, purpose: "server", user: "root", deadlineMs }, signal);
    if (done.ended === "exit" && done.exitCode === 0) continue;
    const end = done.ended === "deadline" ? "ran past its limit" : `exited with ${done.exitCode}`;
    const message = `Could not set up sandbox for '${task.id}': '${command}' ${end}: ${ending(done.stderr, 600)}`;
    throw new EpisodeFailure(message, { stage: "seed", kind: null, terminal: false });
  }
  const argv = (start === null ? null : mainOf(start).argv) ?? entrypointArgv(image.entrypoint) ?? [];
  const entrypoint = argv.length === 0 ? null : await startEntrypoint(argv, image, box, clock, signal);
  if (start !== null) await awaitMain(start, box, clock, signal);
  if (task.environment.healthcheck !== undefined) {
    await awaitHealthy(task.environment.healthcheck, task.agent.user, box, clock, signal);
  }
  if (entrypoint !== null) await failedEntrypoint(entrypoint);
  return entrypoint;
}

/** MCP servers and skills for a harness, where it looks for them (episodes §3.2.3). */
function toolFile(task: Task) {
  const { mcp_servers, skills_dir } = task.environment;
  if (mcp_servers.length === 0 && skills_dir === undefined) return [];
  const data = JSON.stringify({ mcp_servers, skills_dir: skills_dir ?? null });
  return ["/tmp/.nemo-gym", OURS].map((to) => ({ from: task.folder, to, only: [], extra: { "task.json": { data } } }));
}
