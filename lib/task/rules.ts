/**
 * Rules of task.toml that no single key's type tells: old spellings, conflicts, ranges, modes, names. They run on a
 * document whose keys have the right types. Three groups: for every reader, for `--strict` alone (Harbor 0.25.0 refuses
 * more), and for the default alone (NeMo Gym refuses more); spec/decisions 13.
 */
import { megabytes } from "./lax.ts";
import { normalHost } from "./hosts.ts";
import { dotted, type Path } from "./keys.ts";
import { mcpFaults } from "./mcp.ts";
import { type Findings, type RefusalCode, type REFUSALS, shown } from "./refusals.ts";
import {
  type AgentToml,
  type ArtifactToml,
  type EnvironmentToml,
  type TaskToml,
  Tpu,
  type VerifierToml,
} from "./schema.ts";
import { stepNameFault, stepNameKey } from "./step_name.ts";

type RuleFacts<C extends RefusalCode> = Parameters<(typeof REFUSALS)[C]["say"]>[0];

/** Says a finding about one key of the document. */
export type Say = <C extends RefusalCode>(
  code: C,
  path: Path,
  facts: Omit<RuleFacts<C>, "at" | "key"> & { key?: string },
) => void;

/** Binds a collector to one file. `lineOf` is asked only when something is wrong. */
export function sayer(findings: Findings, at: string, file: string, lineOf: (path: Path) => number | undefined): Say {
  return (code, path, facts) => {
    const key = dotted(path);
    const all = { at, key, ...facts } as unknown as RuleFacts<typeof code>;
    findings.add(code, all as never, { key, file, line: lineOf(path) });
  };
}

/** Applies every rule; old spellings are replaced in `config`, which is changed in place. */
export function applyRules(config: TaskToml, raw: Record<string, unknown>, say: Say, strict: boolean): void {
  forAllEnvironments(config, (environment, path) => settleEnvironment(environment, path, say));
  forAllPhases(config, (phase, path) => settleNetwork(phase, path, say));
  forAllVerifiers(config, (verifier, path) => verifierRules(verifier, path, say));
  forAllArtifacts(
    config,
    (artifacts, path) => artifacts.forEach((one, index) => artifactRules(one, [...path, index], say, strict)),
  );
  stepNames(config, say);
  if (config.schema_version === undefined && config.version !== undefined) takeVersion(config, say, strict);
  if (strict) harborRules(config, say);
  else gymRules(config, raw, say);
}

type Visit<T> = (value: T, path: Path) => void;

function forAllVerifiers(config: TaskToml, visit: Visit<VerifierToml>): void {
  if (config.verifier !== undefined) visit(config.verifier, ["verifier"]);
  config.steps?.forEach((step, index) => step.verifier && visit(step.verifier, ["steps", index, "verifier"]));
}

function forAllEnvironments(config: TaskToml, visit: Visit<EnvironmentToml>): void {
  if (config.environment !== undefined) visit(config.environment, ["environment"]);
  forAllVerifiers(
    config,
    (verifier, path) => verifier.environment && visit(verifier.environment, [...path, "environment"]),
  );
}

/** Everything that may name a network: agents, verifiers and environments. */
function forAllPhases(config: TaskToml, visit: Visit<AgentToml | VerifierToml | EnvironmentToml>): void {
  if (config.agent !== undefined) visit(config.agent, ["agent"]);
  config.steps?.forEach((step, index) => step.agent && visit(step.agent, ["steps", index, "agent"]));
  forAllVerifiers(config, visit);
  forAllEnvironments(config, visit);
}

function forAllArtifacts(config: TaskToml, visit: Visit<ArtifactToml[]>): void {
  if (config.artifacts !== undefined) visit(config.artifacts, ["artifacts"]);
  config.steps?.forEach((step, index) => step.artifacts && visit(step.artifacts, ["steps", index, "artifacts"]));
}

function settleEnvironment(environment: EnvironmentToml, path: Path, say: Say): void {
  for (const old of ["memory", "storage"] as const) settleSize(environment, old, path, say);
  if (environment.allow_internet !== undefined) {
    if (environment.network_mode === undefined && environment.allowed_hosts === undefined) {
      environment.network_mode = environment.allow_internet ? "public" : "no-network";
    }
    delete environment.allow_internet;
  }
  environment.mcp_servers?.forEach((server, index) => {
    const here = [...path, "mcp_servers", index];
    for (const fault of mcpFaults(server)) {
      say("mcp.invalid", fault.key === undefined ? here : [...here, fault.key], {
        detail: fault.message,
        hint: fault.hint,
      });
    }
  });
}

function settleSize(environment: EnvironmentToml, old: "memory" | "storage", path: Path, say: Say): void {
  const value = environment[old];
  if (value === undefined) return;
  delete environment[old];
  const here = [...path, old];
  if (typeof value !== "string") return say("size.ignored", here, { found: shown(value), wanted: "text" });
  const size = megabytes(value);
  if (size === undefined) return say("size.invalid", here, { found: value, wanted: "a number followed by K, M or G" });
  const current = environment[`${old}_mb`];
  if (current !== undefined && current !== size) {
    return say("size.conflict", here, {
      key: old,
      other: `${old}_mb`,
      old: `${shown(value)} (${size} MiB)`,
      found: shown(current),
    });
  }
  environment[`${old}_mb`] = size;
}

function settleNetwork(phase: AgentToml | VerifierToml | EnvironmentToml, path: Path, say: Say): void {
  if (phase.allowed_hosts === undefined) return;
  const here = [...path, "allowed_hosts"];
  phase.allowed_hosts = phase.allowed_hosts.map((entry, index) => {
    const host = normalHost(entry);
    if (host === undefined) {
      say("network.bad-host", [...here, index], {
        found: shown(entry),
        wanted: "a hostname, an IP address or a CIDR range, without scheme, port or path",
      });
    }
    return host ?? entry;
  });
  // An environment's mode is "public" when unset, a phase's is unknown then: there even an empty list says something.
  const { network_mode: mode = path.at(-1) === "environment" ? "public" : undefined } = phase;
  if (mode !== "allowlist" && (mode === undefined || phase.allowed_hosts.length > 0)) {
    say("network.hosts-without-allowlist", here, {
      mode: phase.network_mode === undefined ? "none" : shown(phase.network_mode),
    });
  }
}

function verifierRules(verifier: VerifierToml, path: Path, say: Say): void {
  if (verifier.environment_mode === "shared" && verifier.environment !== undefined) {
    say("verifier.shared-environment", [...path, "environment"], {});
  }
  verifier.collect?.forEach((hook, index) => settleService(hook, [...path, "collect", index, "service"], say));
}

const SERVICE = /^[A-Za-z0-9][A-Za-z0-9_.-]*$/;

function settleService(holder: { service?: string }, path: Path, say: Say): void {
  if (holder.service === undefined) return;
  holder.service = holder.service.trim();
  if (SERVICE.test(holder.service)) return;
  say("service.name", path, {
    found: shown(holder.service),
    wanted: "a Compose service name: a letter or digit, then letters, digits, `_`, `.` or `-`",
  });
}

function artifactRules(artifact: ArtifactToml, path: Path, say: Say, strict: boolean): void {
  const source = typeof artifact === "string" ? artifact : artifact.source;
  const sourcePath = typeof artifact === "string" ? path : [...path, "source"];
  const parts = source.split(/[/\\]/);
  if (parts.includes("..")) say("artifact.path", sourcePath, { found: shown(source), wanted: "no .. in it" });
  else if (!strict && source.includes("\\")) {
    say("artifact.path", sourcePath, { found: shown(source), wanted: "forward slashes" });
  }
  if (typeof artifact === "string") return;
  if (artifact.destination === "") delete artifact.destination;
  if (artifact.destination !== undefined) destinationRules(artifact.destination, [...path, "destination"], say);
  settleService(artifact, [...path, "service"], say);
  const service = artifact.service ?? "main";
  if (service !== "main" && !/^(\/|[A-Za-z]:[\\/])/.test(source)) {
    say("artifact.sidecar", sourcePath, {
      found: shown(source),
      wanted: `absolute, as it is copied from service '${service}'`,
    });
  }
}

function destinationRules(destination: string, path: Path, say: Say): void {
  const found = shown(destination);
  if (destination.includes("\\")) {
    return say("artifact.destination", path, { found, wanted: "must use forward slashes" });
  }
  if (/^(\/|[A-Za-z]:)/.test(destination)) return say("artifact.destination", path, { found, wanted: "relative" });
  const parts = destination.split("/").filter((part) => part !== "" && part !== ".");
  if (parts.includes("..")) return say("artifact.path", path, { found, wanted: "no .. in it" });
  if (parts.length === 0) return say("artifact.destination", path, { found, wanted: "must name a file or a folder" });
  if (parts.length === 1 && parts[0] === "manifest.json") {
    say("artifact.destination", path, { found, wanted: "which is reserved for the list of collected files" });
  }
}

function stepNames(config: TaskToml, say: Say): void {
  const seen = new Map<string, number>();
  config.steps?.forEach((step, index) => {
    const path = ["steps", index, "name"];
    const fault = stepNameFault(step.name);
    if (fault !== undefined) say("step.name", path, { found: shown(step.name), wanted: fault });
    const key = stepNameKey(step.name);
    const first = seen.get(key);
    if (first !== undefined) say("step.duplicate", path, { found: shown(step.name), other: `steps[${first}]` });
    seen.set(key, first ?? index);
  });
}

/** `version` was schema_version's name; Harbor wants text, NeMo Gym turns a number into text. */
function takeVersion(config: TaskToml, say: Say, strict: boolean): void {
  const { version } = config;
  if (typeof version === "string") config.schema_version = version;
  else if (!strict && (typeof version === "number" || typeof version === "bigint")) {
    config.schema_version = String(version);
  } else say("toml.type", ["version"], { found: shown(version), wanted: "text in quotes" });
}

/** What only Harbor 0.25.0 refuses. */
function harborRules(config: TaskToml, say: Say): void {
  forAllEnvironments(config, (environment, path) => {
    if (environment.cpus !== undefined && !Number.isFinite(environment.cpus)) {
      say("toml.not-finite", [...path, "cpus"], { found: shown(environment.cpus) });
    }
    if (environment.tpu === undefined) return;
    const tpu = Tpu.safeParse(environment.tpu);
    for (const issue of tpu.error?.issues ?? []) {
      say("toml.type", [...path, "tpu", ...issue.path as Path], {
        found: shown(at(environment.tpu, issue.path as Path)),
        wanted: issue.message,
      });
    }
  });
  const name = config.task?.name;
  if (typeof name === "string" && !packageName(name)) {
    say("package.name", ["task", "name"], {
      found: shown(name),
      wanted: "org/name of letters, digits, `-`, `_` and `.`",
    });
  }
}

/** Python's `$` lets one line feed at the end pass. */
const packageName = (name: string): boolean =>
  /^[A-Za-z0-9][A-Za-z0-9._-]*\/[A-Za-z0-9][A-Za-z0-9._-]*\n?$/.test(name) && !name.includes("..");

/** What only NeMo Gym refuses or remarks. */
function gymRules(config: TaskToml, raw: Record<string, unknown>, say: Say): void {
  notFinite(raw, [], say);
  const above = (value: unknown, path: Path): void => {
    if (value === undefined || (typeof value === "number" && value > 0 && value < Infinity)) return;
    say("toml.range", path, { found: shown(value), wanted: "above 0", hint: unlimited(path) });
  };
  if (config.agent !== undefined) above(config.agent.timeout_sec, ["agent", "timeout_sec"]);
  config.steps?.forEach((step, index) => above(step.agent?.timeout_sec, ["steps", index, "agent", "timeout_sec"]));
  forAllVerifiers(config, (verifier, path) => {
    above(verifier.timeout_sec, [...path, "timeout_sec"]);
    verifier.collect?.forEach((hook, index) => above(hook.timeout_sec, [...path, "collect", index, "timeout_sec"]));
  });
  forAllEnvironments(config, (environment, path) => {
    for (const key of ["build_timeout_sec", "cpus", "memory_mb", "storage_mb"] as const) {
      above(environment[key], [...path, key]);
    }
    if (environment.gpus !== undefined && environment.gpus < 0) {
      say("toml.range", [...path, "gpus"], { found: shown(environment.gpus), wanted: "0 or more" });
    }
    if (environment.os === "windows") say("os.windows", [...path, "os"], {});
    if (environment.tpu !== undefined) say("tpu.ignored", [...path, "tpu"], {});
  });
  forAllPhases(config, (phase, path) => {
    if (phase.network_mode === "allowlist") say("network.allowlist", [...path, "network_mode"], {});
  });
  networkChanges(config, say);
  if (config.task !== undefined && config.task.name === undefined) say("package.unnamed", ["task"], {});
}

const unlimited = (path: Path): string | undefined =>
  path.at(-1) === "timeout_sec" ? "leave timeout_sec out for the default" : undefined;

/** One episode is one sandbox, whose network does not change between turns (task-format §13 #3). */
function networkChanges(config: TaskToml, say: Say): void {
  for (const phase of ["agent", "verifier"] as const) {
    const modes = (config.steps ?? []).map((step) =>
      step[phase]?.network_mode ?? config[phase]?.network_mode ?? config.environment?.network_mode ?? "public"
    );
    const different = modes.findIndex((mode) => mode !== modes[0]);
    if (different > 0) {
      say("network.changes", ["steps", different, phase, "network_mode"], {
        phase,
        found: `${modes[0]}, then ${modes[different]}`,
      });
    }
  }
}

/** NaN and infinities are refused wherever they stand (task-format §2). */
function notFinite(value: unknown, path: Path, say: Say): void {
  if (typeof value === "number") {
    if (!Number.isFinite(value)) say("toml.not-finite", path, { found: shown(value) });
  } else if (Array.isArray(value)) {
    value.forEach((one, index) => notFinite(one, [...path, index], say));
  } else if (typeof value === "object" && value !== null && !(value instanceof Date)) {
    for (const [key, one] of Object.entries(value)) notFinite(one, [...path, key], say);
  }
}

/** The value at a path of a document. */
export function at(value: unknown, path: Path): unknown {
  return path.reduce<unknown>(
    (inner, part) => (inner as Record<string | number, unknown> | undefined | null)?.[part],
    value,
  );
}
