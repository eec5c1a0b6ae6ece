/**
 * From tasks to the episodes to run, and what each may take: identities (episodes §1), time budget (§3.10), and what
 * this version cannot run. Pure.
 */
import type { Task } from "../task/task.ts";
import type { EpisodeSettings } from "./settings.ts";

/** A task that was selected, loaded and can be run here. */
export interface PlannedTask {
  task: Task;
  /** Place in the selection, from 0. */
  taskIndex: number;
  /** Effective task digest. */
  digest: string;
}

/** One attempt at one task. */
export interface EpisodePlan extends PlannedTask {
  rolloutIndex: number;
  /** 0 for the first; a resumed run counts on. */
  attempt: number;
}

/** Names all files and sandboxes of one attempt: `3-0`, `3-0-a1`. */
export function captureKey(plan: Pick<EpisodePlan, "taskIndex" | "rolloutIndex" | "attempt">): string {
  const key = rolloutId(plan);
  return plan.attempt === 0 ? key : `${key}-a${plan.attempt}`;
}

export const rolloutId = (plan: Pick<EpisodePlan, "taskIndex" | "rolloutIndex">): string =>
  `${plan.taskIndex}-${plan.rolloutIndex}`;

/** Every repeat of every task, task by task. Lazy: a plan of any length costs what is in flight. */
export function* expand(tasks: Iterable<PlannedTask>, repeats: number): Generator<EpisodePlan> {
  for (const planned of tasks) {
    for (let rolloutIndex = 0; rolloutIndex < repeats; rolloutIndex++) yield { ...planned, rolloutIndex, attempt: 0 };
  }
}

/**
 * Seconds from the ready sandbox to the verdict: `task` is the task's own budget, or null where it is not enforced.
 * Inner limits are capped by what is left of it, so they normally fire first.
 */
export function budgetSec(task: Task, settings: EpisodeSettings): number | null {
  if (!settings.enforce_task_timeouts) return null;
  const hooks = task.verifier.collect.reduce((sum, hook) => sum + hook.timeout_sec, 0);
  return settings.harness_setup_allowance_s + task.agent.timeout_sec + hooks + task.verifier.timeout_sec +
    settings.verifier_grace_s + healthcheckSec(task);
}

/** The longest a health check may take to fail (episodes §3.2.2). */
function healthcheckSec(task: Task): number {
  const check = task.environment.healthcheck;
  return check === undefined ? 0 : check.start_period_sec + check.retries * (check.timeout_sec + check.interval_sec);
}

/** What of the task this version cannot run, as skipped.json words it; null when it can. */
export function notInThisVersion(task: Task): string | null {
  const feature = unbuiltFeature(task);
  return feature === null ? null : `not in this version: ${feature}`;
}

function unbuiltFeature(task: Task): string | null {
  const { environment, agent, verifier } = task;
  if (task.steps.length > 0) return "steps";
  if (task.verifierMode === "separate") return "separate verifier";
  if (environment.os === "windows") return "os windows";
  const base = environment.network_mode ?? "public";
  if ([environment, agent, verifier].some((phase) => phase.network_mode === "allowlist")) {
    return "network_mode allowlist";
  }
  for (const [phase, settings] of [["agent", agent], ["verifier", verifier]] as const) {
    const mode = settings.network_mode;
    if (mode !== undefined && mode !== base) return `per-phase networks ([${phase}].network_mode = "${mode}")`;
  }
  return null;
}

/** Harbor's name of one trial: at most 32 characters of the task's short name, then seven random ones. */
export function trialName(taskName: string, random: string): string {
  const short = taskName.slice(taskName.lastIndexOf("/") + 1);
  const prefix = Array.from(short).slice(0, 32).join("").replace(/[-_]+$/, "");
  return `${prefix}__${random}`;
}
