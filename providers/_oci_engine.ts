/** What differs between engines; docker.ts and podman.ts fill it in, everything else is one code for both. */
import type { Missing } from "../lib/sandbox/provider.ts";
import type { Program } from "./_oci_argv.ts";
import type { Inspected } from "./_oci_image.ts";

/** What an engine says about itself and its machine. */
export interface EngineFacts {
  version: string;
  /** `os/arch` of what it runs. */
  platform: string;
  cpus: number;
  /** Limits that really hold; false ones are left out of command lines and noted. */
  limits: { cpu: boolean; memory: boolean; pids: boolean };
  gpus: boolean;
  /** Whether a network that we make has a name server that knows its members. */
  nameServer: boolean;
  /** Why members cannot have a network of their own here, and what mends it; undefined where they can. */
  noGroups?: Missing;
}

export interface Engine {
  program: Program;
  /** Simultaneous command-line processes at work on a start, a removal or an image. */
  concurrency: number;
  /** Asks the engine; throws "engine.missing". Shared by all who wait. */
  facts(signal: AbortSignal): Promise<EngineFacts>;
  /** Of an image's `RepoDigests` those that a registry gave it; absent where the engine knows no others. */
  registryDigests?(image: Inspected, signal: AbortSignal): Promise<string[]>;
  /** What a thorough look around finds beside a trial: worth knowing, each with what mends it. */
  faults(signal: AbortSignal): Promise<Missing[]>;
}
