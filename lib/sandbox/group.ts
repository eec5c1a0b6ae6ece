/**
 * Sandboxes that belong together: the services of a Compose task. A provider offers the pieces, in terms of what an
 * engine can do; lib/compose orders them (who waits for whom, health, what is copied in) the same for all.
 */
import type { Command, ExecResult, Limits, Network, PreparedImage, Sandbox, SandboxSpec } from "./provider.ts";
import type { Owner } from "./owner.ts";

export interface GroupSpec {
  owner: Owner;
  /** Capture key of the episode. */
  episode: string;
  network: Network;
  /**
   * Everyone who will have an address in the group, `main` among them: an engine that tells names by a file must know them
   * beforehand. Members without a network or with that of another are left out.
   */
  members: { service: string; aliases: string[] }[];
  /** Named volumes of the group, by the name in the Compose file. A new one gets the image's files at its first target. */
  volumes: string[];
}

/**
 * What not every engine can give a member, spelled as Compose does. A provider lists what its groups lack, and lib/compose
 * refuses a file that asks for it, at prepare.
 */
export type MemberFeature =
  | "cap_add"
  | "cap_drop"
  | "gpus"
  | "hostname"
  | "init"
  | "read_only"
  | "security_opt"
  | "shm_size"
  | "stop_signal"
  | "tmpfs"
  | "ulimits";

export type ServiceMount =
  /** A staged copy below the run's scratch, a file or a folder, never the task's own; writable ones are the episode's own. */
  | { kind: "bind"; source: string; target: string; readOnly: boolean }
  | { kind: "volume"; name: string; target: string; readOnly: boolean; noCopy: boolean }
  | { kind: "scratch"; target: string }
  | { kind: "tmpfs"; target: string; options: string };

/** What every member of a group has, `main` as well as a sidecar. */
export interface MemberSpec {
  /** Service name: its host name inside the group. */
  service: string;
  aliases: string[];
  /** Shares the network of this service, which has been started. */
  networkOf?: string;
  noNetwork?: boolean;
  mounts: ServiceMount[];
  extraHosts: Record<string, string>;
  capAdd: string[];
  capDrop: string[];
  noNewPrivileges: boolean;
  hostname?: string;
  shmBytes?: number;
  ulimits: Record<string, { soft: number; hard: number }>;
  init?: boolean;
  readOnly?: boolean;
}

export interface ServiceSpec extends MemberSpec {
  image: PreparedImage;
  /** Entrypoint and command, settled; never empty. */
  argv: string[];
  /** Over the image's own. */
  env: Record<string, string>;
  workdir?: string;
  user?: string;
  limits: Limits;
  ttlMs: number;
  stopSignal?: string;
  stopGraceMs?: number;
}

export type ServiceState = { state: "running" } | { state: "ended"; exitCode: number | null };

/** A started sidecar. */
export interface Service {
  readonly name: string;
  state(signal: AbortSignal): Promise<ServiceState>;
  /** Resolves when its own process ended: one long question to the engine, so that nobody has to poll (F6). */
  ended(signal: AbortSignal): Promise<{ exitCode: number | null }>;
  /** Runs a probe or a hook in it, as its own user and in its working directory unless told otherwise. */
  exec(command: Command, signal: AbortSignal): Promise<ExecResult>;
  /** The end of what it printed, standard output and error as they came; also after it ended. */
  tail(bytes: number): Promise<string>;
  /** Writes its whole output so far to a file of this machine. */
  saveLog(path: string, maxBytes: number): Promise<void>;
}

/** A group that has its network and its volumes. Disposal ends all members in reverse order, then volumes and network. */
export interface Group extends AsyncDisposable {
  /** Resolves once the service's own process has begun. Throws "sandbox.failed" with the end of its output. */
  startService(spec: ServiceSpec, signal: AbortSignal): Promise<Service>;
  /**
   * The sandbox of the agent, on the group's network under the name `main` and its aliases. Its keep() leaves the whole
   * group when the group is disposed of; its own disposal may come first and ends nothing but itself.
   */
  openMain(spec: SandboxSpec, member: MemberSpec, signal: AbortSignal): Promise<Sandbox>;
}
