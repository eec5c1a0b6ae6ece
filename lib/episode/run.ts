/**
 * One attempt at one task: seed → agent → verification → cleanup, and its row (episodes §3). Every state has a
 * deadline and one way out: the sandbox is gone before the row is handed on.
 *
 * Only the end of the whole run is thrown (the attempt is owed again), save when the verdict is already known.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { messageOf } from "../errors.ts";
import type { Agent, AgentOutcome, ModelResponse } from "../agent/agent.ts";
import { plainResponse } from "../agent/response.ts";
import type { Emit, Phase } from "../events.ts";
import { Redactor } from "../rollouts/redact.ts";
import type { RowMaker } from "../rollouts/rows.ts";
import type { Outcome } from "../rollouts/schema.ts";
import type { Clock } from "../runtime/clock.ts";
import type { Gate } from "../runtime/pool.ts";
import { randomWord } from "../runtime/random.ts";
import { quoted } from "../runtime/runner.ts";
import { isSecretName } from "../secrets.ts";
import type { Owner } from "../sandbox/owner.ts";
import type { PreparedImage, Sandbox, SandboxProvider, SandboxSpec } from "../sandbox/provider.ts";
import { resolveTemplates, template } from "../task/env.ts";
import type { Task } from "../task/task.ts";
import { verify } from "../verifier/run.ts";
import { trajectoryOf } from "../verifier/trajectory.ts";
import { type ComposeStart, type Opened, openTask } from "./compose.ts";
import type { TaskCopies, TaskCopy } from "./copies.ts";
import { withEvidence } from "../sandbox/evidence.ts";
import { endsRun, EpisodeFailure, type Stage, toFailure } from "./failures.ts";
import { failed, resultRow } from "./outcome.ts";
import { budgetSec, captureKey, type EpisodePlan, rolloutId, trialName } from "./plan.ts";
import { applyOverlay } from "./overlay.ts";
import { finishSeed, seedSpec } from "./seed.ts";
import type { EpisodeSettings } from "./settings.ts";

export interface EpisodeDeps {
  provider: SandboxProvider;
  agent: Agent;
  clock: Clock;
  emit: Emit;
  owner: Owner;
  /** The image of a task; shared by all who wait for it. */
  imageOf(task: Task, signal: AbortSignal): Promise<PreparedImage>;
  /** Its Compose file with the images of all services; null for a task without one. */
  composeOf(task: Task): ComposeStart | null;
  /** How many members of groups are started at once. */
  startGate: Gate;
  /** Private folder of the run. */
  scratch: string;
  copies: TaskCopies;
  settings: EpisodeSettings;
  rows: RowMaker;
  /** `verifier/` of the results folder, absolute. */
  logsRoot: string;
  /** This machine's environment, for `${NAME}` in tasks. */
  hostEnv: Readonly<Record<string, string | undefined>>;
  /** Folders of this machine that no task may see: the dataset, the results. */
  hide: string[];
  /** Version of this program, for transcripts. */
  version: string;
  /** Leave the sandbox of a failed episode (--keep-failed). */
  keepFailed: boolean;
}

/** What is known while an episode runs; rows are made from it, however it ends. */
export interface State {
  stage: Stage;
  startedAt: Date;
  startedTicks: number;
  image: PreparedImage | null;
  box: Sandbox | null;
  notes: string[];
}

/** The state of an episode that begins now. */
export const freshState = ({ clock }: Pick<EpisodeDeps, "clock">): State => ({
  stage: "seed",
  startedAt: clock.now(),
  startedTicks: clock.ticks(),
  image: null,
  box: null,
  notes: [],
});

/**
 * Runs one attempt, at most `default_episode_timeout_seconds` long, and returns its outcome with the sandbox gone.
 * Throws the signal's reason, and what ends the run because nothing can be recorded any more ("store.…").
 */
export async function runEpisode(plan: EpisodePlan, deps: EpisodeDeps, signal: AbortSignal): Promise<Outcome> {
  const { clock, settings } = deps;
  const state = freshState(deps);
  const cap = clock.deadline(settings.default_episode_timeout_seconds * 1000, signal);
  const redactor = new Redactor(secretsOf(plan.task, deps));
  tell(plan, deps, "seeding");
  try {
    await using taken = await deps.copies.take(plan);
    const spec = await seedSpec(plan, deps, state, cap);
    const [start, copy, trial] = [deps.composeOf(plan.task), taken.copy, trialName(plan.task.id, randomWord(7))];
    const services = join(deps.logsRoot, `session-${trial}`, "services");
    const asked = { plan, spec, start, copy, logs: services };
    const begun = openTask(asked, deps, cap).catch(async (error) => {
      if (existsSync(services)) await redactor.folder(services);
      throw error;
    });
    await using opened = guarded(await begun, deps);
    const { box, group } = opened;
    state.box = box;
    const attempt = { plan, deps, state, redactor, copy, image: spec.image, box, group, start, trial, services };
    const outcome = redactor.value(await inSandbox(attempt, spec, cap, signal));
    if (deps.keepFailed && isFailed(outcome)) keep(plan, box, deps);
    tell(plan, deps, "cleaning");
    return outcome;
  } catch (error) {
    signal.throwIfAborted();
    if (endsRun(error)) throw error;
    return redactor.value(failed(plan, deps, state, cap.aborted ? timedOut() : toFailure(error, state.stage)));
  }
}

/** An attempt whose sandbox is ready. */
export interface Attempt {
  plan: EpisodePlan;
  deps: EpisodeDeps;
  state: State;
  redactor: Redactor;
  copy: TaskCopy;
  image: PreparedImage;
  box: Sandbox;
  /** The sidecars of a Compose task. */
  group: Opened["group"];
  start: ComposeStart | null;
  /** Names this attempt's folder of logs. */
  trial: string;
  /** The part of that folder where the output of sidecars goes. */
  services: string;
}

/**
 * From the ready sandbox to the outcome; the task's own budget runs from here. `cap` ends the episode, `signal` the run.
 */
async function inSandbox(
  opened: Attempt,
  spec: SandboxSpec,
  cap: AbortSignal,
  signal: AbortSignal,
): Promise<Outcome> {
  const { plan, deps, state, redactor, copy, image } = opened;
  const { clock } = deps;
  const budgetMs = (budgetSec(plan.task, deps.settings) ?? Infinity) * 1000;
  let limit = cap;
  try {
    const box = await applyOverlay(opened, spec, cap);
    const attempt = { ...opened, box };
    const ready = clock.ticks();
    limit = clock.deadline(budgetMs, cap);
    const entrypoint = await finishSeed(attempt, limit);
    state.stage = "agent";
    tell(plan, deps, "agent");
    const agent = await runAgent(attempt, limit);
    state.notes.push(...agent.notes);
    state.stage = "verification";
    tell(plan, deps, "verifying");
    const response = redactor.value(agent.response);
    const verification = await verify(
      {
        grader: graderIn(plan.task, copy),
        testsFolder: copy.tests,
        taskData: plan.task.taskData,
        hooks: plan.task.verifier.collect,
        inputs: plan.task.verifier.inputs,
        user: plan.task.verifier.user ?? (image.user || "root"),
        env: resolveTemplates(plan.task.verifier.env, deps.hostEnv, "verifier.env"),
        timeoutSec: plan.task.verifier.timeout_sec,
        leftMs: budgetMs - (clock.ticks() - ready),
        trajectory: transcript(plan, deps, state, response),
        response,
        entrypoint,
        services: opened.group?.services ?? new Map(),
      },
      box,
      { clock, logsRoot: deps.logsRoot, sessionId: opened.trial, redactor },
      limit,
    );
    await lookAround(opened);
    return { kind: "result", row: resultRow(plan, deps, state, { ...agent, response }, verification) };
  } catch (error) {
    signal.throwIfAborted();
    if (endsRun(error)) throw error;
    await lookAround(opened);
    if (cap.aborted) return failed(plan, deps, state, timedOut());
    if (limit.aborted) {
      const message = `Episode exceeded the time budget of task ${plan.task.id}`;
      const facts = { stage: state.stage, kind: "harbor:task_deadline", terminal: false } as const;
      return failed(plan, deps, state, new EpisodeFailure(message, facts));
    }
    return failed(plan, deps, state, toFailure(await withEvidence(error, opened.box), state.stage));
  }
}

/** What became of the sidecars goes into the row, what they printed beside its other files. */
async function lookAround({ group, services, state, redactor }: Attempt): Promise<void> {
  if (group === null) return;
  state.notes.push(...await group.lastLook(services));
  if (existsSync(services)) await redactor.folder(services);
}

const timedOut = () => new EpisodeFailure("Episode timed out", { stage: null, kind: null, terminal: false });

async function runAgent({ plan, copy, deps, box }: Attempt, limit: AbortSignal): Promise<AgentOutcome> {
  const { task } = plan;
  const timeoutMs = task.agent.timeout_sec * 1000;
  // A harness keeps its own limit; one that does not is cut off a moment later, and its state is graded all the same.
  const own = deps.clock.deadline(timeoutMs + 60_000, limit);
  try {
    return await deps.agent.run(
      {
        instruction: task.instruction,
        solution: solutionIn(task, copy, deps.hostEnv),
        timeoutMs,
        user: task.agent.user,
      },
      box,
      null,
      own,
    );
  } catch (error) {
    limit.throwIfAborted();
    if (!own.aborted) throw error;
    const envelope = plainResponse({
      id: `agent-timeout-${captureKey(plan)}`,
      model: deps.agent.name,
      createdAt: deps.clock.now(),
      status: "incomplete",
      text: "",
      metadata: { agent_timed_out: "true", response_source: "environment_timeout_envelope" },
    });
    return { response: envelope, timedOut: true, notes: [] };
  }
}

function solutionIn(task: Task, copy: TaskCopy, hostEnv: EpisodeDeps["hostEnv"]) {
  if (task.solution === null || copy.solution === null) return null;
  return task.solution.kind === "answer.md" ? { kind: "answer.md" as const, path: `${copy.solution}/answer.md` } : {
    kind: "solve.sh" as const,
    folder: copy.solution,
    env: resolveTemplates(task.solutionEnv, hostEnv, "solution.env"),
  };
}

function graderIn(task: Task, copy: TaskCopy) {
  const grader = task.grader!;
  return grader.kind === "python" && grader.tests !== null
    ? { ...grader, verifier: `${copy.tests}/verifier.py` }
    : grader;
}

/** What came from this machine's environment, by name, and what the operator gives every sandbox as a secret. */
function secretsOf(task: Task, { hostEnv, settings, composeOf }: EpisodeDeps): Record<string, string> {
  const names = [task.environment.env, task.verifier.env, task.solutionEnv].flatMap((table) => Object.values(table))
    .flatMap((value) => template(value)?.name ?? []);
  return Object.fromEntries([
    ...Object.entries(settings.sandbox_env).filter(([name]) => isSecretName(name)),
    ...names.flatMap((name) => (hostEnv[name] === undefined ? [] : [[name, hostEnv[name]]])),
    ...Object.entries(composeOf(task)?.plan.taken ?? {}),
  ]);
}

function transcript(plan: EpisodePlan, deps: EpisodeDeps, state: State, response: ModelResponse) {
  return trajectoryOf({
    captureKey: captureKey(plan),
    rolloutId: rolloutId(plan),
    attempt: plan.attempt,
    agent: { name: deps.agent.name, version: deps.version },
    instruction: plan.task.instruction,
    askedAt: state.startedAt,
    response,
  });
}

/** A sandbox whose end is bounded and never hides the outcome: what could not be removed is told, and swept later. */
function guarded(opened: Opened, deps: EpisodeDeps): Opened {
  return {
    ...opened,
    async [Symbol.asyncDispose]() {
      const done = new AbortController();
      const late = deps.clock.sleep(deps.settings.cleanup_timeout_seconds * 1000, done.signal).then(
        () => Promise.reject(new Error(`not removed within ${deps.settings.cleanup_timeout_seconds} s`)),
        () => {},
      );
      try {
        await Promise.race([opened[Symbol.asyncDispose](), late]);
      } catch (error) {
        const text = `sandbox ${opened.box.id} is left over: ${messageOf(error)}; gym-harbor sandbox gc removes it`;
        deps.emit({ kind: "warning", text });
      } finally {
        done.abort();
      }
    },
  };
}

const isFailed = (outcome: Outcome): boolean =>
  outcome.kind === "failure" || outcome.row.mask_sample || outcome.row.reward < 1;

function keep(plan: EpisodePlan, box: Sandbox, deps: EpisodeDeps): void {
  box.keep();
  deps.emit({ kind: "kept", task: plan.task.id, enter: quoted(box.enterArgv) });
}

function tell(plan: EpisodePlan, deps: EpisodeDeps, phase: Phase): void {
  deps.emit({ kind: "phase", episode: captureKey(plan), task: plan.task.id, phase, at: deps.clock.ticks() });
}
