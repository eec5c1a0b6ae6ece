/** What builds an image from a context; providers/builders/ has one per tool. */
import type { Emit } from "../events.ts";
import type { ImageConfig } from "./config.ts";

export type BuildToolName = "docker" | "buildah" | "podman" | "namespace";

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
  /** Tries what the plan needs. Throws HarborError "machine.lacks" or "engine.missing" with the text of spec §4. */
  preflight(plan: { heredocs: boolean; platform: string }, signal: AbortSignal): Promise<void>;
  /** Builds, checks the platform, pushes. Throws "image.failed" whose message is the task's reason (spec §4.6). */
  build(request: BuildRequest, signal: AbortSignal, emit: Emit): Promise<BuiltImage>;
  /** Whether an image that a record names is still in this tool's store. */
  has(name: string, signal: AbortSignal): Promise<boolean>;
}
