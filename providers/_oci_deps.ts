/** What every part of a sandbox with a control shell works with. */
import type { Emit } from "../lib/events.ts";
import type { Clock } from "../lib/runtime/clock.ts";
import type { Gate } from "../lib/runtime/pool.ts";
import type { Runner } from "../lib/runtime/runner.ts";
import type { Program } from "./_oci_argv.ts";
import type { Inspected } from "./_oci_image.ts";
import type { BoxClient } from "./_oci_client.ts";

export interface BoxDeps {
  client: BoxClient;
  runner: Runner;
  gate: Gate;
  clock: Clock;
  env: Readonly<Record<string, string | undefined>>;
  emit: Emit;
  /** The run's own folder, which goes with the run. */
  scratch: string;
  /** Of an image's `RepoDigests` those that a registry gave it; absent where the engine knows no others. */
  registryDigests?: (image: Inspected, signal: AbortSignal) => Promise<string[]>;
}

/** The same with docker or podman below it. */
export interface SandboxDeps extends BoxDeps {
  program: Program;
}
