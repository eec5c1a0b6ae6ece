/**
 * What a sandbox is, to everything that uses one. lib owns these interfaces; `providers/` implements them; the two meet
 * in `cmd/`. The promises are tested by `tests/contract/provider_contract.ts`, which every provider passes.
 *
 * A sandbox is cheap to ask once and dear to ask often (docker exec 120-220 ms, podman 265 ms): one exec may carry file
 * trees in, run, and bring small files back.
 */
import type { Emit } from "../events.ts";
import type { Clock } from "../runtime/clock.ts";
import type { Runner } from "../runtime/runner.ts";
import type { DownloadLimits, DownloadReport, HostTree } from "../files/tar.ts";
import type { ImageConfig } from "../images/config.ts";
import type { Registry } from "../registry/registry.ts";
import type { RegistrySettings } from "../registry/settings.ts";
import type { ImageStore, StoredImage } from "../store/store.ts";
import type { Group, GroupSpec, MemberFeature } from "./group.ts";
import type { Owner } from "./owner.ts";

export type { DownloadLimits, DownloadReport, HostTree };

export type ProviderName = "docker" | "podman" | "host" | "namespace" | "apptainer" | "enroot";

/** Network of a sandbox or phase, as task.toml spells it. `host` only by override (`++sandbox.host.network=host`). */
export type Network = "public" | "no-network" | "host";

export interface Limits {
  cpus?: number;
  memoryMb?: number;
  storageMb?: number;
  gpus?: number;
}

/**
 * How limits hold: by the kernel, by our own watching (CPU affinity, memory looked at several times a second), by the
 * kernel for some of them, or not at all.
 */
export type LimitsHeld = "enforced" | "watched" | "partly" | "none";

/** What a task needs to start from. Pure data made by lib/images/plan.ts. */
export interface ImageNeed {
  taskId: string;
  source:
    /**
     * An image by name: `docker_image` as written, a pinned base, a built `hb__…`. `aliases` are other names under
     * which this machine may hold the same image (the spelling in the Dockerfile, a bundle's), tried in order.
     * `configDigest` (`sha256:…`, from records) tells whether an image found under another name is the one that is meant.
     */
    | { kind: "named"; reference: string; aliases?: string[]; configDigest?: string }
    /** environment/Dockerfile; `tag` is `hb__<context hash>`. */
    | { kind: "dockerfile"; context: string; dockerfile: string; tag: string; buildTimeoutMs: number }
    /** No image and no Dockerfile: only `host` can take it. */
    | { kind: "none" };
  network: Network;
  limits: Limits;
  /** Users that commands of the task will run as; undefined entries mean the image's own. */
  users: (string | undefined)[];
  /** Where the task's Dockerfile adds a user: its entrypoint or its tests may become that one by themselves. */
  addsUser?: { line: number; words: string };
}

/** An image that is ready to start, with what its configuration says. */
export interface PreparedImage {
  /** What rows and summary say: the reference that was started, `hb__…` when built, `host` on this machine's root. */
  reference: string;
  /** The name under which this machine holds it, where that is another one. */
  alias?: string;
  /** RUN lines of an overlay Dockerfile, applied at seed in order (task-format §6.4). */
  overlay?: OverlayLine[];
  /** Image configuration: working directory ("/" when unset), environment, user ("" = root), entrypoint. */
  workdir: string;
  env: Record<string, string>;
  user: string;
  entrypoint: string[];
  /** The configuration as recorded or inspected: a Compose service takes command, ports and health check from it. */
  config?: ImageConfig;
  /** The part of `env` that a Dockerfile sets on an image that is started as it is: it goes into SandboxSpec.env. */
  declared?: Record<string, string>;
  /** Everything that was not done as the task asked (RUN lines left out, limits not enforced, …). */
  notes: string[];
  /** The provider's own data; nobody else looks inside. */
  handle?: unknown;
}

/** One RUN line with the state that was in effect where it stands. */
export interface OverlayLine {
  command: string;
  /** 1-based line of the Dockerfile. */
  line: number;
  workdir: string;
  env: Record<string, string>;
  /** "" is root. */
  user: string;
}

/** An image that a provider has on this machine, told without asking any network. */
export interface LocalImage {
  /** `sha256:…` of its configuration blob. */
  configDigest: string;
  /** References by digest that registries gave it, canonical; empty for one that was only ever local. */
  repoDigests: string[];
  config: ImageConfig;
  /** `os/arch`. */
  platform: string;
}

export interface SandboxSpec {
  image: PreparedImage;
  owner: Owner;
  /** Capture key of the episode, `0-0` or `0-0-a1`; names the sandbox together with the run. */
  episode: string;
  role: "agent" | "verifier";
  /** Environment of every command, over the image's own. Values may be secret: never in argv. */
  env: Record<string, string>;
  /** Default working directory; created as root when missing (chowned to `user` when given and non-root). */
  workdir: string | undefined;
  /** Default user of commands; undefined means the image's. */
  user: string | undefined;
  network: Network;
  limits: Limits;
  /** The sandbox ends by itself after this, should everything else fail. */
  ttlMs: number;
  readyTimeoutMs: number;
  /** Shell script run as root right after the start, before open() resolves: the seed's mkdir and chmod in the same call. */
  setup?: string;
  /**
   * Absolute paths of this machine that must not be visible inside, wherever they lie: the dataset folder, the results
   * folder. Only a provider that shows this machine's own files has to do anything about it.
   */
  hide?: string[];
  /** The sandbox may have to outlive this process (--keep-failed): it is not tied to it by force, only by its pipes. */
  keepable?: boolean;
}

/**
 * Who a command works for. A deadline kills all that the command started, save what an agent put into the background;
 * after an ordinary end the background services of an agent or of the reference solution are part of what is graded.
 */
export type Purpose = "server" | "agent" | "oracle" | "verifier";

export interface Command {
  /** A shell script (bash where the image has it, else sh) or an argv. Any length: it travels by stdin where needed. */
  run: { script: string } | { argv: string[] };
  purpose: Purpose;
  /** Default: the sandbox's. */
  cwd?: string;
  /** Over the sandbox's environment. */
  env?: Record<string, string>;
  /** Default: the sandbox's. "root" is always possible. */
  user?: string;
  /** At this limit all processes of the command are dead; a promise, not a hint. Infinity is allowed. */
  deadlineMs: number;
  /** Trees carried in before the command starts, as root, in this order. */
  unpack?: HostTree[];
  /** Script run as root before `unpack` in the same call (emptying folders, say). Its failure fails the call. */
  before?: string;
  /** Small regular files brought back after the command ended (also after its deadline), links not followed. */
  collect?: { path: string; maxBytes: number }[];
  /** Folders brought out after the command ended (also after its deadline), as download() does, in the same call where the engine can. */
  bring?: { from: string; to: string; limits: DownloadLimits }[];
  /** Bytes of output kept per stream; head and tail. Default 1 MiB. */
  keepBytes?: number;
}

export interface ExecResult {
  /** "exit": exitCode is the command's own word. "deadline": we killed it. */
  ended: "exit" | "deadline";
  exitCode: number;
  stdout: string;
  stderr: string;
  droppedBytes: number;
  durationMs: number;
  /** By path; a file that is absent, no regular file or over its limit says which. */
  collected: Record<string, Collected>;
  /** One report per `bring`, in order; a folder that is absent gives an empty report. */
  brought: DownloadReport[];
  /** Whether the kernel's OOM killer struck inside during this command; null when no counter was readable. */
  oomKilled: boolean | null;
}

export type Collected =
  | { kind: "file"; data: Uint8Array }
  | { kind: "absent" }
  | { kind: "refused"; reason: string }; // "not a regular file", "larger than N bytes", "a symbolic link"

export interface Running {
  /** Resolves when it ended; never rejects. */
  wait(): Promise<{ exitCode: number }>;
  /** The last `bytes` of its merged output. */
  tail(bytes: number): Promise<string>;
  /** Its exit code, or null while it runs. */
  poll(): Promise<number | null>;
  kill(): Promise<void>;
}

export type Alive =
  | { state: "running" }
  /** `oomKilled` null: nothing told. `text`: what the engine said. */
  | { state: "gone"; oomKilled: boolean | null; exitCode: number | null; text: string };

export interface Sandbox extends AsyncDisposable {
  /** Engine's id or name, as a person would type it. */
  readonly id: string;
  /** argv that opens a shell in it (for --keep-failed). */
  readonly enterArgv: readonly string[];
  /** Working directory in effect (absolute). */
  readonly workdir: string;
  /** What was not as the task asked, including the image's notes. */
  readonly notes: readonly string[];
  readonly limits: LimitsHeld;
  /** Network in effect, for the row. */
  readonly network: Network;
  /** Never throws for a failing command. Throws HarborError "sandbox.lost" when the sandbox is gone, "sandbox.failed" when the engine did not do it, "transfer.failed" for files, "task.unsupported" for a variable that no command can have. */
  exec(command: Command, signal: AbortSignal): Promise<ExecResult>;
  /** Entrypoints and supervisors: starts in the background; ends with the sandbox. */
  spawn(command: Omit<Command, "unpack" | "collect" | "before" | "deadlineMs">): Promise<Running>;
  /** Copies a folder out: regular files and links that stay inside. `to` must exist. */
  download(from: string, to: string, limits: DownloadLimits, signal: AbortSignal): Promise<DownloadReport>;
  /** One regular file, links not followed; throws "transfer.failed" naming absent, refused or too large. */
  read(path: string, maxBytes: number): Promise<Uint8Array>;
  /** Evidence about what happened to it. */
  alive(): Promise<Alive>;
  /** Leaves it running when disposed (--keep-failed). */
  keep(): void;
}

export interface Missing {
  what: string;
  /** The command or setting that mends it, and who must do it when not the user. */
  fix: string;
}

export interface Capabilities {
  networks: Network[];
  limits: LimitsHeld;
  users: "any" | "own-id-only";
  build: boolean;
  /** Several sandboxes on a network of their own, who know each other by name (openGroup). */
  groups?: boolean;
  gpu: boolean;
  /** Version of the engine or of util-linux. */
  version: string;
}

export interface Diagnosis {
  name: ProviderName;
  usable: boolean;
  /** What stands in the way (usable false) or is worth knowing (usable true). */
  missing: Missing[];
  capabilities: Capabilities | null;
  /** Where it keeps things and how much room there is, a line each, for a person; "thorough" only. */
  facts?: string[];
}

/** Which objects a sweep or list means. */
export interface OwnerFilter {
  /** Only this run; default: every run of ours on this host. */
  run?: string;
  /** Runs to leave alone. */
  except?: (run: string) => boolean;
  /** Only objects at least this old, in milliseconds. */
  olderThanMs?: number;
  /** Also objects whose owner lives or cannot be judged (never by default). */
  evenAlive?: boolean;
}

export interface Leftover {
  id: string;
  provider: ProviderName;
  owner: Owner;
  alive: boolean | undefined;
  ageMs: number;
}

export interface SweepReport {
  removed: string[];
  failed: { id: string; reason: string }[];
}

/** What every provider is made from (providers/mod.ts). */
export interface ProviderDeps {
  runner: Runner;
  clock: Clock;
  env: Readonly<Record<string, string | undefined>>;
  emit: Emit;
  /** The run's own folder on node-local disk (lib/sandbox/scratch.ts), for temp files, sockets and mounts; made and removed by the command. */
  scratch: string;
  /** Nothing may be asked of any network: no pulls, no builds (--offline). */
  offline?: boolean;
  /** Our own image store, for providers that start from it or take images from it. */
  store?: ImageStore;
  /** Where layers are unpacked (--unpack-dir); undefined: a place of the provider's choice on a disk of this machine. */
  unpackDir?: string;
  /** Where images come from that are not on this machine, for providers without an engine. */
  registry?: Registry;
  /** What the user says of registries (`registries.<host>.…`), for clients that pull by themselves. */
  registries?: RegistrySettings;
  /** `os/arch` of the run (`builds.platform`). */
  platform?: string;
  /** Overrides below `sandbox.<name>.` (`network`, `run`, …), as given. */
  options: Readonly<Record<string, unknown>>;
}

export interface SandboxProvider {
  readonly name: ProviderName;
  /**
   * Tried for real. Never throws for a machine that lacks something: that is its answer. "quick" only asks whether it
   * would work (before a run); "thorough" (the default) also starts something and looks around.
   */
  diagnose(signal: AbortSignal, depth?: "quick" | "thorough"): Promise<Diagnosis>;
  /**
   * Finds, pulls or builds the image; once per image, shared by all who wait. Throws "image.failed" (the image) or
   * "task.unsupported" (the task asks what this provider cannot do: named here, not at seed).
   */
  prepare(need: ImageNeed, signal: AbortSignal, emit: Emit): Promise<PreparedImage>;
  /**
   * Resolves when commands and transfers work. Cleans up half-made sandboxes. Throws "sandbox.failed", or
   * "task.unsupported" for a variable that no command can have.
   */
  open(spec: SandboxSpec, signal: AbortSignal): Promise<Sandbox>;
  /** What it has under a name, without any network; undefined when it has none. */
  local?(reference: string, signal: AbortSignal): Promise<LocalImage | undefined>;
  /** Makes an image of our store startable under `names`: once, checked by its configuration digest. */
  takeIn?(image: StoredImage, store: ImageStore, names: string[], signal: AbortSignal): Promise<void>;
  /** Brings an image that it has into a store under `names`, its configuration byte for byte. Throws "image.failed". */
  saveInto?(reference: string, store: ImageStore, names: string[], signal: AbortSignal): Promise<StoredImage>;
  /** Sandboxes that belong together; absent where this provider has none (a Compose task is refused at prepare). */
  openGroup?(spec: GroupSpec, signal: AbortSignal): Promise<Group>;
  /** Why this machine lets it have no groups, with what mends it; undefined where it has them. Asks the engine once. */
  noGroups?(signal: AbortSignal): Promise<Missing | undefined>;
  /** What its groups cannot give a member; a Compose file that asks for it is refused at prepare. */
  readonly groupLacks?: readonly MemberFeature[];
  /** What is ours on this machine. */
  list(filter: OwnerFilter, signal: AbortSignal): Promise<Leftover[]>;
  /** Removes what dead owners left. */
  sweep(filter: OwnerFilter, signal: AbortSignal): Promise<SweepReport>;
  /** Removes everything of this run, synchronously and within seconds: the second Ctrl-C. */
  sweepNow(run: string): void;
  /** Ends what it holds for a whole run (relays, proxies); sandboxes are closed by who opened them. */
  [Symbol.asyncDispose]?(): Promise<void>;
}
