/**
 * The shape of task.toml: Harbor's schema 1.4 as read by 0.25.0 (spec/task-format §2, spec/harbor-upstream 0.25.0 A).
 * One zod schema serves three readers: the loader (types), `task schema` (JSON Schema with these descriptions) and the
 * tables derived in keys.ts (which keys are known, which values are the defaults).
 *
 * Types are as lax as upstream's, so absent keys stay absent and defaults are filled in by effective.ts. What one key alone
 * cannot tell (conflicts, ranges, modes) is in rules.ts.
 */
import { z } from "zod";
import { laxBoolean, laxInteger, laxNumber } from "./lax.ts";

/** Facts about a key that zod does not hold: read by keys.ts and by toJSONSchema. */
interface About {
  type?: string | string[];
  default?: unknown;
  deprecated?: boolean;
}

/** A scalar that upstream reads laxly; `wanted` finishes "must be …". */
function scalar<T>(read: (value: unknown) => T | undefined, wanted: string, about: string, more: About) {
  return z.unknown().transform((value, context): T => {
    const result = read(value);
    if (result !== undefined) return result;
    context.addIssue({ code: "custom", message: wanted });
    return z.NEVER;
  }).optional().meta({ description: about, ...more });
}

const integer = (about: string) => scalar(laxInteger, "a whole number", about, { type: "integer" });
const number = (about: string, value?: number) =>
  scalar(laxNumber, "a number", about, { type: "number", ...(value !== undefined && { default: value }) });
const boolean = (about: string, more: About = {}) =>
  scalar(laxBoolean, "true or false", about, { type: "boolean", ...more });
const user = (about: string) =>
  scalar((value) => typeof value === "string" ? value : laxInteger(value), "a name or a whole number", about, {
    type: ["string", "integer"],
  });
const text = (about: string, value?: string) =>
  z.string().optional().meta({ description: about, ...(value !== undefined && { default: value }) });
const texts = (about: string, value?: string[]) =>
  z.array(z.string()).optional().meta({ description: about, ...(value !== undefined && { default: value }) });
const environmentVariables = (about: string) =>
  z.record(z.string(), z.string()).optional().meta({ description: about, default: {} });
const old = (about: string, type: string[]) =>
  z.unknown().optional().meta({ description: `Old spelling: ${about}`, type, deprecated: true });

const NETWORK_MODES = ["public", "no-network", "allowlist"] as const;

const phaseNetwork = {
  network_mode: z.enum(NETWORK_MODES).optional().meta({
    description: "Network of this phase, instead of the environment's.",
  }),
  allowed_hosts: texts('Hosts this phase may reach; only with network_mode = "allowlist".'),
};

export const Healthcheck = z.looseObject({
  command: z.string().meta({ description: "Exit 0 means healthy." }),
  interval_sec: number("Wait between attempts that count, in seconds.", 5),
  timeout_sec: number("Bound of one attempt, in seconds.", 30),
  start_period_sec: number("Failures within this time after the start do not count, in seconds.", 0),
  start_interval_sec: number("Wait between attempts in the start period, in seconds.", 5),
  retries: scalar(laxInteger, "a whole number", "Consecutive failures that end the wait.", {
    type: "integer",
    default: 3,
  }),
}).meta({ description: "Polled before the agent starts." });

export const McpServer = z.looseObject({
  name: z.string().meta({ description: "Name under which the agent sees the server." }),
  transport: z.unknown().transform((value) => value === "http" ? "streamable-http" : value)
    .pipe(z.enum(["stdio", "sse", "streamable-http"])).optional()
    .meta({ description: "`http` is read as streamable-http.", default: "sse" }),
  url: text("Endpoint; required for sse and streamable-http."),
  command: text("Program to start; required for stdio."),
  args: texts("Arguments of the command.", []),
  headers: z.record(z.string(), z.string()).optional().meta({
    description: "HTTP headers; values may hold ${NAME} and ${NAME:-default}. Not for stdio.",
    default: {},
  }),
}).meta({ description: "A Model Context Protocol server for the agent." });

export const Environment = z.looseObject({
  docker_image: text("Prebuilt image to run in."),
  build_timeout_sec: number("Bound of an image build, in seconds.", 600),
  os: z.unknown().transform((value) => typeof value === "string" ? value.toLowerCase() : value)
    .pipe(z.enum(["linux", "windows"])).optional()
    .meta({ description: "Operating system of the image; only linux is run here.", default: "linux" }),
  cpus: scalar(laxNumber, "a number", "CPUs of the sandbox, whole or fractional.", { type: "number" }),
  memory_mb: integer("Memory of the sandbox, in MiB."),
  storage_mb: integer("Disk of the sandbox, in MiB."),
  gpus: integer("Number of GPUs."),
  gpu_types: texts("Acceptable GPU types."),
  tpu: z.unknown().optional().meta({ description: "Harbor's TPU request; ignored here.", type: "object" }),
  env: environmentVariables("Environment of the sandbox; a value may be ${NAME} or ${NAME:-default} of the host."),
  mcp_servers: z.array(McpServer).optional().meta({ description: "MCP servers for the agent.", default: [] }),
  skills_dir: text("Folder of skills inside the sandbox, handed to the agent."),
  healthcheck: Healthcheck.optional(),
  workdir: text("Working directory, instead of the image's."),
  network_mode: z.enum(NETWORK_MODES).optional().meta({ description: "Network of the sandbox.", default: "public" }),
  allowed_hosts: texts('Hosts the sandbox may reach; only with network_mode = "allowlist".'),
  allow_internet: boolean("Old spelling: network_mode.", { deprecated: true }),
  memory: old("memory_mb, as text with K, M or G.", ["string"]),
  storage: old("storage_mb, as text with K, M or G.", ["string"]),
}).meta({ description: "A sandbox: its image, limits, network." });

const Collect = z.looseObject({
  command: z.string().meta({ description: "Run after the agent, before artifacts are copied." }),
  service: text("Compose service to run it in.", "main"),
  timeout_sec: number("Bound of the command, in seconds.", 60),
  user: user("User it runs as."),
}).meta({ description: "A command that gathers evidence after the agent." });

const Verifier = z.looseObject({
  timeout_sec: number("Bound of the tests, in seconds.", 600),
  user: user("User the tests run as."),
  env: environmentVariables("Environment of the tests; a value may be ${NAME} or ${NAME:-default} of the host."),
  environment_mode: z.enum(["shared", "separate"]).optional().meta({
    description: "Where the tests run: beside the agent's files or in a sandbox of their own.",
  }),
  environment: Environment.optional(),
  collect: z.array(Collect).optional().meta({
    description: "Commands that gather evidence after the agent.",
    default: [],
  }),
  ...phaseNetwork,
}).meta({ description: "How the work is graded.", default: {} });

export const Agent = z.looseObject({
  timeout_sec: number("Bound of the agent's work, in seconds; 28800 when absent."),
  user: user("User the agent's commands run as."),
  ...phaseNetwork,
}).meta({ description: "Limits of the agent.", default: {} });

const ArtifactTable = z.looseObject({
  source: z.string().meta({ description: "Path in the sandbox." }),
  destination: text("Relative path on the host; absent: the source without its leading slash."),
  service: text("Compose service to copy from."),
  exclude: texts("tar patterns left out of a folder.", []),
}).meta({ description: "A file or folder kept after the run." });

const Artifacts = z.array(z.union([z.string(), ArtifactTable])).optional().meta({
  description: "Files kept after the run; above the first table header.",
  default: [],
});

export const Step = z.looseObject({
  name: z.string().meta({ description: "Folder of the step below steps/." }),
  agent: Agent.optional(),
  verifier: Verifier.optional(),
  min_reward: z.unknown().transform((value, context): number | Record<string, number> => {
    const single = laxNumber(value);
    if (single !== undefined) return single;
    const entries = isTable(value)
      ? Object.entries(value).map(([key, one]) => [key, laxNumber(one)] as const)
      : undefined;
    if (entries?.every(([, one]) => one !== undefined)) return Object.fromEntries(entries) as Record<string, number>;
    context.addIssue({ code: "custom", message: "a number or a table of numbers" });
    return z.NEVER;
  }).optional().meta({
    description: "The run stops after this step when its reward is below.",
    type: ["number", "object"],
  }),
  healthcheck: Healthcheck.optional(),
  artifacts: Artifacts,
}).meta({ description: "One turn of a multi-step task." });

/** The TOML reader's tables have no prototype; its dates have one. */
const isTable = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && [null, Object.prototype].includes(Object.getPrototypeOf(value));

/** `[task]` as Harbor checks it (`--strict`); by default the table is free (task-format §2.2). */
const Package = z.looseObject({
  name: z.string().meta({ description: "org/name" }),
  version: z.string().min(1).optional().meta({ description: "Version of the task." }),
  description: text("One line for listings.", ""),
  authors: z.array(z.looseObject({ name: z.string(), email: text("Address of the author.") })).optional()
    .meta({ description: "Authors.", default: [] }),
  keywords: texts("Words to find it by.", []),
}).meta({ description: "Package information, for registries." });

const free = (about: string, more: About = {}) =>
  z.record(z.string(), z.unknown()).optional().meta({ description: about, ...more });

export const TaskToml = z.looseObject({
  schema_version: text("Version of this schema.", "1.4"),
  version: old("schema_version.", ["string", "number"]),
  source: text("Where the task comes from."),
  artifacts: Artifacts,
  multi_step_reward_strategy: z.enum(["mean", "final"]).optional().meta({
    description: "How the rewards of steps become one; mean when absent.",
  }),
  multi_step_reward_mode: old("dropped before schema 1.3.", ["string"]),
  task: free("Package information, for registries."),
  metadata: free("Free table.", { default: {} }),
  agent: Agent.optional(),
  environment: Environment.optional().meta({ description: "What the agent works in.", default: {} }),
  verifier: Verifier.optional(),
  solution: z.looseObject({ env: environmentVariables("Environment of solution/solve.sh.") }).optional()
    .meta({ description: "The reference solution.", default: {} }),
  steps: z.array(Step).optional().meta({ description: "Turns of a multi-step task, in order." }),
}).meta({ title: "task.toml", description: "Settings of a task folder (Harbor schema 1.4)." });

/** The same with `[task]` checked. */
export const StrictTaskToml = TaskToml.extend({ task: Package.optional() });

export const Tpu = z.looseObject({
  type: z.string(),
  topology: z.string().regex(/^[1-9]\d*(x[1-9]\d*)+$/, "dimensions such as 2x4"),
});

export type TaskToml = z.infer<typeof TaskToml>;
export type EnvironmentToml = z.infer<typeof Environment>;
export type VerifierToml = z.infer<typeof Verifier>;
export type AgentToml = z.infer<typeof Agent>;
export type ArtifactToml = string | z.infer<typeof ArtifactTable>;
export type StepToml = z.infer<typeof Step>;
export type HealthcheckToml = z.infer<typeof Healthcheck>;
