/**
 * Engine clients that outlived the run which started them. A SIGKILL of ours does not reach `docker run`: its client
 * goes on, and a container may appear after a sweep has looked. So every client carries its owner in its environment,
 * and a sweep first sees the clients of dead owners end.
 */
import { readdirSync, readFileSync } from "node:fs";
import { basename } from "node:path";
import process from "node:process";
import { z } from "zod";
import type { Clock } from "../lib/runtime/clock.ts";
import { concerns, isAlive, type Owner, startTime, thisOwner } from "../lib/sandbox/owner.ts";
import type { OwnerFilter } from "../lib/sandbox/provider.ts";
import type { Program } from "./_oci_argv.ts";
import { endDescendants } from "./builders/_run.ts";

const VARIABLE = "GYM_HARBOR_OWNER";
const OwnerText = z.object({ run: z.string(), host: z.string(), pid: z.number(), start: z.string() });

/** A client that starts or removes a container is nearly done: it gets this long to end by itself. */
const PATIENCE_MS = 10_000;
/** A build whose step was ended tidies up by itself within this, or is asked to end. */
const TIDY_MS = 5_000;
const STEP_MS = 50;

/** What a client's environment says of its owner. */
export function ownerVariable(run: string): Record<string, string> {
  return { [VARIABLE]: JSON.stringify(thisOwner(run)) };
}

export interface Orphan {
  pid: number;
  /** The engine's command: `run`, `exec`, `build` … */
  verb: string;
  owner: Owner;
}

/** The client that a process's argv and environment show (both as /proc has them), when it is one of ours. */
export function clientOf(program: Program, argv: string, environ: string): Omit<Orphan, "pid"> | undefined {
  const [path, verb] = argv.split("\0");
  if (path === undefined || basename(path) !== basename(program.path)) return undefined;
  const text = environ.split("\0").find((one) => one.startsWith(`${VARIABLE}=`))?.slice(VARIABLE.length + 1);
  if (text === undefined) return undefined;
  try {
    return { verb: verb ?? "", owner: OwnerText.parse(JSON.parse(text)) };
  } catch {
    return undefined; // somebody else's variable of that name
  }
}

/**
 * Sees the clients of dead owners end: those at work on a container by themselves; builds and pulls as in builders/_run.ts,
 * by the end of their step, then by a signal. What hangs is killed.
 */
export async function endOrphans(
  program: Program,
  filter: OwnerFilter,
  clock: Clock,
  signal: AbortSignal,
): Promise<void> {
  const started = clock.ticks();
  const stepEnded = new Set<number>();
  for (let left = orphans(program, filter); left.length > 0; left = orphans(program, filter)) {
    const waited = clock.ticks() - started;
    if (waited > PATIENCE_MS + TIDY_MS) return; // the engine itself hangs: the sweep says so
    for (const { pid, verb } of left) {
      if (waited > PATIENCE_MS) signalGroup(pid, "SIGKILL");
      else if (["build", "buildx", "pull"].includes(verb)) {
        if (!stepEnded.has(pid) && endDescendants(pid) > 0) stepEnded.add(pid);
        else if (!stepEnded.has(pid) || waited > TIDY_MS) signalGroup(pid, "SIGTERM");
      }
    }
    await clock.sleep(STEP_MS, signal);
  }
}

function orphans(program: Program, filter: OwnerFilter): Orphan[] {
  return readdirSync("/proc").filter((name) => /^\d+$/.test(name)).flatMap((name) => {
    const client = clientOf(program, read(name, "cmdline"), read(name, "environ"));
    if (client === undefined || startTime(Number(name)) === undefined) return [];
    return concerns(filter, client.owner) && isAlive(client.owner) === false ? [{ pid: Number(name), ...client }] : [];
  });
}

function read(pid: string, name: string): string {
  try {
    return readFileSync(`/proc/${pid}/${name}`, "utf8");
  } catch {
    return ""; // it ended meanwhile, or is another user's
  }
}

/** Clients lead a process group of their own, with what they started. */
function signalGroup(pid: number, signal: NodeJS.Signals): void {
  for (const target of [-pid, pid]) {
    try {
      process.kill(target, signal);
    } catch {
      // it ended meanwhile
    }
  }
}
