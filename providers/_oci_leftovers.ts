/** What an engine has with our labels (containers, then volumes and networks of groups), and how it goes. */
import { execFileSync } from "node:child_process";
import { HarborError } from "../lib/errors.ts";
import { decisiveLine, engineFailure } from "../lib/sandbox/failure.ts";
import { concerns, isAlive, LABEL, ownerOf } from "../lib/sandbox/owner.ts";
import type { Leftover, OwnerFilter, SweepReport } from "../lib/sandbox/provider.ts";
import { listArgv, removeArgv, stateArgv } from "./_oci_argv.ts";
import type { SandboxDeps } from "./_oci_deps.ts";
import type { ThingKind } from "./_oci_group_argv.ts";
import { endOrphans } from "./_oci_orphans.ts";
import { labelledThings, removeThings, removeThingsNow } from "./_oci_things.ts";

const REMOVE_MS = 60_000;
/** Ids per removal: one command line, and bounded work for the engine. */
const REMOVE_TOGETHER = 20;

interface Found extends Leftover {
  kind: ThingKind | "container";
}

const labelFor = (run: string | undefined): string => run === undefined ? `${LABEL}.run` : `${LABEL}.run=${run}`;

/** Throws "engine.missing" when the engine does not answer. */
export async function listLeftovers(deps: SandboxDeps, filter: OwnerFilter, signal: AbortSignal): Promise<Leftover[]> {
  return (await found(deps, filter, signal)).map(({ kind: _, ...leftover }) => leftover);
}

/** In the order in which they can be removed. */
async function found(deps: SandboxDeps, filter: OwnerFilter, signal: AbortSignal): Promise<Found[]> {
  const label = labelFor(filter.run);
  const [shown, things] = await Promise.all([
    containers(deps, label, signal),
    labelledThings(deps, label, signal),
  ]);
  const all = [
    ...shown.map((one) => ({
      kind: "container" as const,
      name: one.Name.replace(/^\//, ""),
      labels: one.Config?.Labels ?? {},
      created: one.Created,
    })),
    ...things,
  ];
  const now = deps.clock.now().getTime();
  return all.flatMap(({ kind, name, labels, created }) => {
    const owner = ownerOf(labels);
    const ageMs = Math.max(0, now - Date.parse(created));
    if (owner === undefined || !concerns(filter, owner) || ageMs < (filter.olderThanMs ?? 0)) return [];
    return [{ kind, id: name, provider: deps.program.engine, owner, alive: isAlive(owner), ageMs }];
  });
}

interface Container {
  Name: string;
  Created: string;
  Config?: { Labels?: Record<string, string> | null };
}

async function containers(deps: SandboxDeps, label: string, signal: AbortSignal): Promise<Container[]> {
  const { program, runner, env } = deps;
  const options = { env, signal, deadlineMs: REMOVE_MS };
  const told = await runner.run(listArgv(program, label), { ...options, keepBytes: 16 << 20 });
  if (told.exitCode !== 0) throw silent(program.engine, told.stderr);
  const ids = told.stdout.split("\n").filter(Boolean);
  if (ids.length === 0) return [];
  const inspect = [...stateArgv(program, "").slice(0, -1), ...ids];
  return parsedContainers((await runner.run(inspect, { ...options, keepBytes: 64 << 20 })).stdout);
}

/** A container that ended between the two calls makes inspect fail and still print the others. */
function parsedContainers(stdout: string): Container[] {
  try {
    return JSON.parse(stdout) as Container[];
  } catch {
    return [];
  }
}

const silent = (engine: string, stderr: string): HarborError =>
  new HarborError(
    "engine.missing",
    `${engine} does not answer: ${engineFailure(stderr)?.line ?? decisiveLine(stderr)}`,
    { hint: "see gym-harbor doctor" },
  );

/** Removes what dead owners left, after their own clients have ended. */
export async function sweepLeftovers(
  deps: SandboxDeps,
  filter: OwnerFilter,
  signal: AbortSignal,
): Promise<SweepReport> {
  const report: SweepReport = { removed: [], failed: [] };
  await endOrphans(deps.program, filter, deps.clock, signal);
  const all = (await found(deps, filter, signal)).filter(({ alive }) => filter.evenAlive || alive === false);
  const idsOf = (kind: Found["kind"]) => all.filter((one) => one.kind === kind).map(({ id }) => id);
  const { runner, env, program } = deps;
  const boxes = idsOf("container");
  for (let at = 0; at < boxes.length; at += REMOVE_TOGETHER) {
    const ids = boxes.slice(at, at + REMOVE_TOGETHER);
    const done = await runner.run(removeArgv(program, ids), { env, signal, deadlineMs: REMOVE_MS, graceMs: 0 });
    signal.throwIfAborted();
    const left = done.exitCode === 0
      ? new Set<string>()
      : new Set((await listLeftovers(deps, filter, signal)).map(({ id }) => id));
    for (const id of ids) {
      if (!left.has(id)) report.removed.push(id);
      else report.failed.push({ id, reason: decisiveLine(done.stderr) });
    }
  }
  for (const kind of ["volume", "network"] as const) {
    signal.throwIfAborted();
    const names = idsOf(kind);
    const left = await removeThings(deps, kind, names);
    report.failed.push(...left.map(({ name, reason }) => ({ id: name, reason })));
    report.removed.push(...names.filter((name) => !left.some((one) => one.name === name)));
  }
  return report;
}

/** Everything of a run, synchronously: the second Ctrl-C. */
export function sweepLeftoversNow({ program, env }: SandboxDeps, run: string): void {
  const call = ([path, ...args]: string[]) => {
    try {
      return execFileSync(path!, args, {
        env: env as Record<string, string>,
        timeout: 10_000,
        killSignal: "SIGKILL",
        stdio: ["ignore", "pipe", "ignore"],
        maxBuffer: 16 << 20,
      }).toString();
    } catch {
      return ""; // what is left is found by the next sweep
    }
  };
  const ids = call(listArgv(program, labelFor(run))).split("\n").filter(Boolean);
  if (ids.length > 0) call(removeArgv(program, ids));
  removeThingsNow(program, labelFor(run), call);
}
