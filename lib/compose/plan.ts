/**
 * A Compose task as everything after the reading sees it: services with settled values, the images they need, and what
 * the file asked for that is done otherwise. Pure data: it names no engine and holds nothing of one episode.
 */
import type { Limits } from "../sandbox/provider.ts";

export type Condition = "service_started" | "service_healthy" | "service_completed_successfully";

export interface Dependency {
  service: string;
  condition: Condition;
}

/** What a probe runs: an argv, or text for `/bin/sh -c`. */
export type Probe = { argv: string[] } | { script: string };

/** A health check in full (spec/images-and-sandboxes §6.5). Times in milliseconds. */
export interface Healthcheck {
  probe: Probe;
  intervalMs: number;
  timeoutMs: number;
  /** Failures in a row, after the start period, that end the wait. */
  retries: number;
  startPeriodMs: number;
  /** Pause between probes while the start period lasts. */
  startIntervalMs: number;
}

/**
 * `healthcheck` as written: parts that are absent come from the image's own. `"none"` switches the image's off.
 */
export type HealthcheckPart = Partial<Healthcheck> | "none";

/** Where a service's image comes from. */
export type ServiceImage =
  /** The image of the task itself: docker_image, or environment/Dockerfile. */
  | { kind: "task" }
  /** By name: needs a record; the reference is spelled as the file has it, variables replaced. */
  | { kind: "reference"; reference: string; platform?: string }
  /** Built at prepare under serviceImageName(…, `service`); several services may use one build. */
  | { kind: "build"; service: string; build: ServiceBuild };

/** A `build` section, settled: what of a BuildRequest (lib/images/builder.ts) a Compose file decides. */
export interface ServiceBuild {
  /** Absolute folder: environment/ or one below it. */
  context: string;
  /** Absolute file inside the context, or the text itself. */
  dockerfile: { path: string } | { inline: string };
  args: Record<string, string>;
  target?: string;
  labels: Record<string, string>;
  shmSize?: string;
  ulimits: Record<string, string>;
  noCache?: boolean;
  pull?: boolean;
  network?: "default" | "none";
  cacheFrom: string[];
}

export type PlannedMount =
  /** `source`: POSIX path below the task folder, a file or a folder; no link on the way. */
  | { kind: "bind"; source: string; target: string; readOnly: boolean }
  | { kind: "volume"; name: string; target: string; readOnly: boolean; noCopy: boolean }
  | { kind: "scratch"; target: string }
  | { kind: "tmpfs"; target: string; options: string };

export interface ComposeService {
  name: string;
  image: ServiceImage;
  /** Undefined: the image's own. An empty list clears it. */
  entrypoint?: string[];
  command?: string[];
  /** Over the image's own. Values may be secret: they stand in no record and no message. */
  environment: Record<string, string>;
  workdir?: string;
  user?: string;
  dependsOn: Dependency[];
  healthcheck?: HealthcheckPart;
  /** TCP ports it offers to the others; documentation, save for `network_mode: service:`. */
  ports: number[];
  aliases: string[];
  networkOf?: string;
  noNetwork: boolean;
  mounts: PlannedMount[];
  limits: Limits;
  extraHosts: Record<string, string>;
  capAdd: string[];
  capDrop: string[];
  noNewPrivileges: boolean;
  readOnly: boolean;
  hostname?: string;
  init?: boolean;
  shmBytes?: number;
  stopSignal?: string;
  stopGraceMs?: number;
  ulimits: Record<string, { soft: number; hard: number }>;
  labels: Record<string, string>;
}

export interface ComposePlan {
  /** In start order: whoever is waited for or lends its network comes first; `main` is among them. */
  services: ComposeService[];
  /** Named volumes in use, sorted. */
  volumes: string[];
  /** Set when the file itself cuts the group off (`networks.default.internal`). */
  network?: "no-network";
  /** Whether anything needs a group: a sidecar, or what a plain sandbox of `main` cannot have. */
  needsGroup: boolean;
  /** What was normalised, for the row's `sandbox.notes`. */
  notes: string[];
  /** What the author should hear once, at prepare: unset variables, keys that are read by nobody. */
  warnings: string[];
  /** Host variables whose values went into services, for the redaction of rows and logs. */
  taken: Record<string, string>;
}

export type ComposeReading =
  | { ok: true; plan: ComposePlan }
  /** `reason` is the whole text for skipped.json and the row: `Compose file was refused: …`. */
  | { ok: false; reason: string; hint: string };

/** Name of the image that a service's `build` gives: `hb__<hash>` for main, else `hb__<hash>__<service>` (spec §3.2). */
export function serviceImageName(taskImage: string, service: string): string {
  return service === "main" ? taskImage : `${taskImage}__${service.toLowerCase().replace(/[^a-z0-9._-]/g, "-")}`;
}
