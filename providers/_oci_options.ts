/** What an operator may set for an engine (`++sandbox.docker.<name>=…`, `++sandbox.podman.<name>=…`); pure. */
import { z } from "zod";
import { HarborError } from "../lib/errors.ts";
import { nearest } from "../lib/suggest.ts";
import type { EngineName } from "./_oci_argv.ts";

/** Enough for any honest task, and the machine survives a fork bomb. */
const PROCESSES = 4096;

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
});

export interface EngineOptions {
  network: string | undefined;
  runArgs: readonly string[];
  pidsLimit: number;
}

/** Throws "usage" for an option or value that there is not. */
export function readOptions(engine: EngineName, given: Readonly<Record<string, unknown>>): EngineOptions {
  const { success, data, error } = Given.safeParse(given);
  if (success) {
    return {
      network: data.network ?? undefined,
      runArgs: data.run_args ?? [],
      pidsLimit: data.pids_limit ?? PROCESSES,
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

const EXAMPLES: Record<string, string> = {
  network: "network=bridge",
  run_args: "run_args=[--shm-size=1g]",
  pids_limit: `pids_limit=${PROCESSES}`,
};
