/**
 * What the loader hands on: a task folder as everything after it sees it. Settings are effective (task.toml, then the
 * dataset's override, then multipliers; spec/task-format §4.5) and keep the spelling they have on disk.
 */

/** One thing the loader has to say, as an error or a warning. `code` is a row of refusals.ts. */
export interface Finding {
  code: string;
  /** Dotted path of the key (`environment.mcp_servers[0].extra`). */
  key?: string;
  message: string;
  hint?: string;
  /** File it stands in, relative to the task folder where it lies inside. */
  file?: string;
  /** 1-based line in that file. */
  line?: number;
}

export type NetworkMode = "public" | "no-network" | "allowlist";

export interface PhaseNetwork {
  network_mode?: NetworkMode;
  allowed_hosts?: string[];
}

export interface AgentSettings extends PhaseNetwork {
  timeout_sec: number;
  user?: string;
}

export interface McpServer {
  name: string;
  transport: "stdio" | "sse" | "streamable-http";
  url?: string;
  command?: string;
  args: string[];
  headers: Record<string, string>;
}

export interface HealthcheckSettings {
  command: string;
  interval_sec: number;
  timeout_sec: number;
  start_period_sec: number;
  start_interval_sec: number;
  retries: number;
}

export interface EnvironmentSettings extends PhaseNetwork {
  docker_image?: string;
  build_timeout_sec: number;
  os: "linux" | "windows";
  cpus?: number;
  memory_mb?: number;
  storage_mb?: number;
  gpus?: number;
  gpu_types?: string[];
  /** Values may be `${NAME}` or `${NAME:-default}`; resolved at use by lib/task/env.ts, never in rows or digests. */
  env: Record<string, string>;
  mcp_servers: McpServer[];
  skills_dir?: string;
  healthcheck?: HealthcheckSettings;
  workdir?: string;
}

export interface CollectHook {
  command: string;
  service: string;
  timeout_sec: number;
  user?: string;
}

export interface VerifierSettings extends PhaseNetwork {
  timeout_sec: number;
  user?: string;
  env: Record<string, string>;
  environment_mode?: "shared" | "separate";
  environment?: EnvironmentSettings;
  collect: CollectHook[];
  /** Files below /logs/verifier that survive the emptying (dataset.toml only). */
  inputs: string[];
}

export interface Artifact {
  source: string;
  /** Relative place below the artifacts folder. */
  destination: string;
  service: string;
  exclude: string[];
}

/** Who grades: tests/test.sh, or a Python module whose `verify` runs inside the sandbox. */
export type Grader =
  | { kind: "test.sh"; tests: string }
  /** `tests` null: the dataset's own verifier.py, the task has no tests/ folder. */
  | { kind: "python"; verifier: string; tests: string | null };

export type Solution = { kind: "solve.sh"; folder: string } | { kind: "answer.md"; path: string };

export interface StepSettings {
  name: string;
  instruction: string;
  agent: AgentSettings;
  verifier: VerifierSettings;
  min_reward?: number | Record<string, number>;
  healthcheck?: HealthcheckSettings;
  artifacts: Artifact[];
  solution: Solution | null;
}

/** What a task starts from (task-format §6.1); `mode` is what `check --json` prints. */
export interface ImagePlan {
  mode: "prebuilt" | "pull" | "overlay" | "build" | "compose" | "none";
  /** `docker_image`, or the base image of a pull or overlay Dockerfile. */
  reference?: string;
  /**
   * Absolute path of environment/Dockerfile when it defines the image. With mode "prebuilt": only when it begins FROM
   * that very image and its WORKDIR, ENV and USER apply (task-format §6.1).
   */
  dockerfile?: string;
  /** First instruction that forces a build, as the spec words it. */
  reason?: string;
  /** Where environment/Dockerfile adds a user. */
  addsUser?: { line: number; words: string };
  /** environment/ files to upload to the working directory (prebuilt without Dockerfile). */
  uploads: boolean;
}

export interface Task {
  /** Folder name. */
  id: string;
  /** Absolute folder. */
  folder: string;
  /** Absolute dataset folder: the root it was found below, or its parent when it was named alone. */
  datasetFolder: string;
  /** POSIX path below datasetFolder. */
  relativePath: string;
  agent: AgentSettings;
  environment: EnvironmentSettings;
  verifier: VerifierSettings;
  solutionEnv: Record<string, string>;
  artifacts: Artifact[];
  multi_step_reward_strategy: "mean" | "final";
  /** Canary-stripped text; "" for a multi-step task. */
  instruction: string;
  steps: StepSettings[];
  /** Null only for multi-step tasks (each step resolves its own) and separate verifiers that bring their tests. */
  grader: Grader | null;
  solution: Solution | null;
  /** task_data.json. */
  taskData: Record<string, unknown>;
  image: ImagePlan;
  verifierMode: "shared" | "separate";
  /** 32 hex digits, or null when there is nothing to hash. */
  contextHash: string | null;
  warnings: Finding[];
}
