/** What builds an image from a context; providers/builders/ has one per tool. */
import type { Emit } from "../events.ts";
import type { RegistrySettings } from "../registry/settings.ts";
import type { ImageConfig } from "./config.ts";

export type BuildToolName = "docker" | "buildah" | "podman" | "namespace";

/** What a failed build was, as `details.class` of its error (spec §4.6). */
export type BuildFailure =
  | "registry-limit" // too many requests to a registry: nothing else should be asked of it now
  | "credentials" // a registry refused the push or the pull
  | "network" // a registry cannot be reached, or is broken for now
  | "disk" // the builder's storage is full: no further build can work either
  | "platform" // the image is of, or needs, another platform than this machine runs
  | "timeout"
  | "build"; // the Dockerfile's own fault

/** The part of `builds.*` and `registries.*` that decides who builds, and how (spec §4.1). */
export interface BuilderOptions {
  tool?: BuildToolName;
  /** Images are pushed below it; unset: they stay on this machine. */
  repository?: string;
  /** `os/arch[/variant]`. */
  platform: string;
  /** More tries of pushes and pulls of base images, on network errors and 5xx alone; first pause, then doubled. */
  retries?: number;
  retryDelayMs?: number;
  /** Images built by podman may stay on this machine. Default: when podman runs them. */
  allowLocalPodman?: boolean;
  /** Where buildah keeps its storage. */
  storageDir?: string;
  registries?: RegistrySettings;
}

/** One build, settled: what is read, what comes out. Pure data. */
export interface BuildRequest {
  /** Absolute folder. */
  context: string;
  /** Absolute path of the Dockerfile; inside the context unless it was written inline. */
  dockerfile: string;
  /** `hb__<context hash>` or `<repository>/hb__<context hash>`. */
  name: string;
  /** `os/arch[/variant]`. */
  platform: string;
  args: Record<string, string>;
  target?: string;
  labels?: Record<string, string>;
  shmSize?: string;
  ulimits?: Record<string, string>;
  noCache?: boolean;
  pull?: boolean;
  network?: "default" | "none";
  cacheFrom?: string[];
  timeoutMs: number;
  /** Push to `name`'s registry after the build. */
  push: boolean;
  /** Whole output goes here. */
  logFile: string;
}

export interface BuiltImage {
  /** `name`, or by digest once pushed. */
  reference: string;
  configDigest: string;
  config: ImageConfig;
  /** `os/arch`. */
  platform: string;
  pushed: boolean;
}

export interface Builder {
  readonly tool: BuildToolName;
  /**
   * Tries what the plan needs; returns what is worth a warning before the first build. Throws HarborError
   * "machine.lacks" or "engine.missing" with the text of spec §4.
   */
  preflight(plan: { heredocs: boolean; platform: string }, signal: AbortSignal): Promise<string[]>;
  /** Builds, checks the platform, pushes. Throws "image.failed" whose message is the task's reason (spec §4.6). */
  build(request: BuildRequest, signal: AbortSignal, emit: Emit): Promise<BuiltImage>;
  /** Whether an image that a record names is still in this tool's store. */
  has(name: string, signal: AbortSignal): Promise<boolean>;
}
