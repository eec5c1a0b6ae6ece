/** What an operator may set for an engine (`++sandbox.docker.<name>=…`, `++sandbox.podman.<name>=…`); pure. */
import { z } from "zod";
import { HarborError } from "../lib/errors.ts";
import { nearest } from "../lib/suggest.ts";
import type { EngineName } from "./_oci_argv.ts";
import type { SubnetPool } from "./_oci_networks.ts";
import { rangeOf } from "./_oci_subnets.ts";

/** Enough for any honest task, and the machine survives a fork bomb. */
const PROCESSES = 4096;

/** Out of the ranges for private networks, and where the defaults of engines and clusters seldom are. */
const SUBNET_POOL = "10.213.0.0/16";
const POOL_FORM = "a range of IPv4 addresses, 16 at least";

const words = (text: string): string[] => text.split(" ").filter(Boolean);

const Given = z.strictObject({
  /** What "public" means; default: the engine's own. */
  network: z.string("the name of a network").min(1, "the name of a network").nullish(),
  /** More flags for `run`: a list, or words with spaces between. Paths are absolute: podman starts in a temp folder. */
  run_args: z.union(
    [z.string().transform(words), z.array(z.coerce.string())],
    "a list of flags, or flags in one string",
  )
    .nullish(),
  /** Processes and threads of one sandbox at most. */
  pids_limit: z.int("a whole number above 0").positive("a whole number above 0").nullish(),
  /** Where the networks of Compose tasks get their addresses. */
  subnet_pool: z.string(POOL_FORM).refine(
    (text) => (rangeOf(text)?.last ?? 0) - (rangeOf(text)?.first ?? 0) >= 15,
    POOL_FORM,
  )
    .nullish(),
});

export interface EngineOptions {
  network: string | undefined;
  runArgs: readonly string[];
  pidsLimit: number;
  subnetPool: SubnetPool;
}

/** Throws "usage" for an option or value that there is not. */
export function readOptions(engine: EngineName, given: Readonly<Record<string, unknown>>): EngineOptions {
  const { success, data, error } = Given.safeParse(given);
  if (success) {
    return {
      network: data.network ?? undefined,
      runArgs: data.run_args ?? [],
      pidsLimit: data.pids_limit ?? PROCESSES,
      subnetPool: poolOf(data.subnet_pool ?? SUBNET_POOL),
    };
  }
  const known = Object.keys(Given.shape);
  const issue = error.issues[0]!;
  if (issue.code === "unrecognized_keys") {
    const key = issue.keys[0]!;
    const near = nearest(key, known);
    throw new HarborError("usage", `unknown option sandbox.${engine}.${key}`, {
      hint: `${near === undefined ? "" : `did you mean ${near}? `}there are ${known.join(", ")}`,
    });
  }
  const name = String(issue.path[0]);
  throw new HarborError(
    "usage",
    `sandbox.${engine}.${name} is ${JSON.stringify(given[name])}, must be ${issue.message}`,
    { hint: `for example ++sandbox.${engine}.${EXAMPLES[name]}` },
  );
}

const poolOf = (text: string): SubnetPool => ({ text, range: rangeOf(text)! });

const EXAMPLES: Record<string, string> = {
  network: "network=bridge",
  run_args: "run_args=[--shm-size=1g]",
  pids_limit: `pids_limit=${PROCESSES}`,
  subnet_pool: `subnet_pool=${SUBNET_POOL}`,
};
