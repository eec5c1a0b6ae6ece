/**
 * Checked keys of task.toml → the settings everything after the loader sees: defaults filled in, steps fallen back to
 * their task, the dataset's multipliers applied (task-format §2.12, §4.5, §5.4).
 */
import { effectiveArtifacts } from "./artifacts.ts";
import type { AgentToml, EnvironmentToml, HealthcheckToml, StepToml, TaskToml, VerifierToml } from "./schema.ts";
import type {
  AgentSettings,
  CollectHook,
  EnvironmentSettings,
  HealthcheckSettings,
  PhaseNetwork,
  StepSettings,
  VerifierSettings,
} from "./task.ts";

/** `[gym.defaults]` of dataset.toml. */
export interface Multipliers {
  timeout: number;
  resource: number;
}

/** Harbor has no limit; NeMo Gym's own (task-format §13 #1). */
const AGENT_TIMEOUT_SEC = 28_800;
const VERIFIER_TIMEOUT_SEC = 600;
const BUILD_TIMEOUT_SEC = 600;
const COLLECT_TIMEOUT_SEC = 60;

/** `[agent]` of a step over that of its task, or of the task alone. Times in seconds, after the multiplier. */
export function agentSettings(agent: AgentToml = {}, multipliers: Multipliers, task: AgentToml = {}): AgentSettings {
  return {
    timeout_sec: (agent.timeout_sec ?? task.timeout_sec ?? AGENT_TIMEOUT_SEC) * multipliers.timeout,
    ...given("user", userName(agent.user ?? task.user)),
    ...network(agent.network_mode === undefined ? task : agent),
  };
}

/** `[environment]` with its defaults; sizes in MiB, after the multiplier. */
export function environmentSettings(environment: EnvironmentToml = {}, multipliers: Multipliers): EnvironmentSettings {
  const scaled = (value: number | undefined) => scaleUp(value, multipliers.resource);
  return {
    ...given("docker_image", environment.docker_image || undefined),
    build_timeout_sec: environment.build_timeout_sec ?? BUILD_TIMEOUT_SEC,
    os: environment.os ?? "linux",
    ...given("cpus", scaled(environment.cpus)),
    ...given("memory_mb", scaled(environment.memory_mb)),
    ...given("storage_mb", scaled(environment.storage_mb)),
    ...given("gpus", environment.gpus),
    ...given("gpu_types", environment.gpu_types),
    env: environment.env ?? {},
    mcp_servers: (environment.mcp_servers ?? []).map((server) => ({
      name: server.name,
      transport: server.transport ?? "sse",
      ...given("url", server.url),
      ...given("command", server.command),
      args: server.args ?? [],
      headers: server.headers ?? {},
    })),
    ...given("skills_dir", environment.skills_dir),
    ...given("healthcheck", healthcheckSettings(environment.healthcheck)),
    ...given("workdir", environment.workdir),
    network_mode: environment.network_mode ?? "public",
    ...given("allowed_hosts", environment.allowed_hosts),
  };
}

/** Rounded up, as half a core cannot be had less of; the product is cleaned of binary noise first (10 × 1.1 is 11). */
function scaleUp(value: number | undefined, factor: number): number | undefined {
  return value === undefined || factor === 1 ? value : Math.ceil(Number((value * factor).toPrecision(12)));
}

/** `[verifier]` with its defaults; `inputs` come from dataset.toml alone. */
export function verifierSettings(
  verifier: VerifierToml = {},
  multipliers: Multipliers,
  inputs: string[] = [],
): VerifierSettings {
  return {
    timeout_sec: (verifier.timeout_sec ?? VERIFIER_TIMEOUT_SEC) * multipliers.timeout,
    ...given("user", userName(verifier.user)),
    env: verifier.env ?? {},
    ...given("environment_mode", verifier.environment_mode),
    ...given("environment", verifier.environment && environmentSettings(verifier.environment, multipliers)),
    collect: hooks(verifier),
    inputs,
    ...network(verifier),
  };
}

/**
 * A step's verifier: user, env, mode and environment fall back to the task's, the timeout never does; hooks follow the
 * task's.
 */
function stepVerifier(
  step: VerifierToml = {},
  task: VerifierToml = {},
  multipliers: Multipliers,
): VerifierSettings {
  const ownMode = step.environment_mode !== undefined || step.environment !== undefined;
  return verifierSettings({
    ...step,
    user: step.user ?? task.user,
    env: { ...task.env, ...step.env },
    environment_mode: ownMode ? step.environment_mode : task.environment_mode,
    environment: step.environment ?? (step.environment_mode === "shared" ? undefined : task.environment),
    collect: [...task.collect ?? [], ...step.collect ?? []],
    ...(step.network_mode === undefined && { network_mode: task.network_mode, allowed_hosts: task.allowed_hosts }),
  }, multipliers);
}

/** Settings of one step without what lies in its folder. */
export function stepSettings(
  step: StepToml,
  config: TaskToml,
  multipliers: Multipliers,
): Omit<StepSettings, "instruction" | "solution"> {
  return {
    name: step.name,
    agent: agentSettings(step.agent, multipliers, config.agent),
    verifier: stepVerifier(step.verifier, config.verifier, multipliers),
    ...given("min_reward", step.min_reward),
    ...given("healthcheck", healthcheckSettings(step.healthcheck)),
    artifacts: effectiveArtifacts([...config.artifacts ?? [], ...step.artifacts ?? []]),
  };
}

/** Where a verifier runs (task-format §5.4): explicit mode, else an environment of its own means separate. */
export function verifierMode(verifier: VerifierToml | undefined): "shared" | "separate" | undefined {
  return verifier?.environment_mode ?? (verifier?.environment === undefined ? undefined : "separate");
}

function hooks(verifier: VerifierToml): CollectHook[] {
  return (verifier.collect ?? []).map((hook) => ({
    command: hook.command,
    service: hook.service ?? "main",
    timeout_sec: hook.timeout_sec ?? COLLECT_TIMEOUT_SEC,
    ...given("user", userName(hook.user)),
  }));
}

function healthcheckSettings(check: HealthcheckToml | undefined): HealthcheckSettings | undefined {
  return check && {
    command: check.command,
    interval_sec: check.interval_sec ?? 5,
    timeout_sec: check.timeout_sec ?? 30,
    start_period_sec: check.start_period_sec ?? 0,
    start_interval_sec: check.start_interval_sec ?? 5,
    retries: check.retries ?? 3,
  };
}

/** `1000` and `"1000"` are one user. */
const userName = (user: string | number | undefined): string | undefined =>
  user === undefined ? undefined : String(user);

const network = (phase: PhaseNetwork): PhaseNetwork => ({
  ...given("network_mode", phase.network_mode),
  ...given("allowed_hosts", phase.allowed_hosts),
});

/** One member, or none where there is no value: absent stays absent. */
function given<K extends string, T>(key: K, value: T | undefined): { [P in K]?: T } {
  return value === undefined ? {} : { [key]: value } as { [P in K]?: T };
}
