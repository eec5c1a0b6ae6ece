/**
 * What an engine has with our labels beside containers: networks and volumes. Removal of a network is tried again while
 * the engine still counts members that have ended (F11: "has active endpoints").
 */
import { decisiveLine, engineFailure } from "../lib/sandbox/failure.ts";
import type { SandboxDeps } from "./_oci_deps.ts";
import { closeAgain } from "./_oci_firewall.ts";
import { inspectThingsArgv, listThingsArgv, removeThingsArgv, type ThingKind } from "./_oci_group_argv.ts";

const ANSWER_MS = 60_000;
const REMOVAL_PAUSES_MS = [200, 1_000, 3_000];

export interface Thing {
  kind: ThingKind;
  name: string;
  labels: Record<string, string>;
  /** As the engine writes it. */
  created: string;
}

/** Networks and volumes with a label. */
export async function labelledThings(deps: SandboxDeps, label: string, signal: AbortSignal): Promise<Thing[]> {
  return (await Promise.all((["volume", "network"] as const).map((kind) => things(deps, kind, label, signal)))).flat();
}

async function things(
  { program, runner, env }: SandboxDeps,
  kind: ThingKind,
  label: string,
  signal: AbortSignal,
): Promise<Thing[]> {
  const options = { env, signal, deadlineMs: ANSWER_MS, keepBytes: 16 << 20 };
  const listed = await runner.run(listThingsArgv(program, kind, label), options);
  const names = listed.exitCode === 0 ? listed.stdout.split("\n").filter(Boolean) : [];
  if (names.length === 0) return [];
  const shown = await runner.run(inspectThingsArgv(program, kind, names), options);
  return parsedThings(shown.stdout, kind);
}

/** docker writes `Name`, `Labels`, `Created` or `CreatedAt`; podman's networks are in lower case. */
function parsedThings(stdout: string, kind: ThingKind): Thing[] {
  try {
    return (JSON.parse(stdout) as Record<string, unknown>[]).map((one) => ({
      kind,
      name: String(one.Name ?? one.name),
      labels: (one.Labels ?? one.labels ?? {}) as Record<string, string>,
      created: String(one.CreatedAt ?? one.Created ?? one.created ?? ""),
    }));
  } catch {
    return [];
  }
}

/** Removes networks or volumes; returns those that stayed, with the engine's reason. */
export async function removeThings(
  deps: SandboxDeps,
  kind: ThingKind,
  names: readonly string[],
): Promise<{ name: string; reason: string }[]> {
  const { program, runner, env, clock, gate } = deps;
  const left: { name: string; reason: string }[] = [];
  for (const name of names) {
    if (kind === "network") await closeAgain(deps, name);
    for (let attempt = 0;; attempt++) {
      const removed = await gate.hold(() =>
        runner.run(removeThingsArgv(program, kind, [name]), { env, deadlineMs: ANSWER_MS, graceMs: 0 })
      );
      if ((removed.ended === "exit" && removed.exitCode === 0) || isAbsent(removed.stderr)) break;
      const failure = engineFailure(removed.stderr);
      const pause = failure?.kind === "daemon-down" ? undefined : REMOVAL_PAUSES_MS[attempt];
      if (pause === undefined) {
        left.push({ name, reason: failure?.line ?? decisiveLine(removed.stderr) });
        break;
      }
      await clock.sleep(pause);
    }
  }
  return left;
}

const isAbsent = (stderr: string): boolean =>
  /no such (network|volume)|network \S+ not found|unable to find network|no volume with name|volume \S+ not found/i
    .test(
      stderr,
    );

/** The same for the second Ctrl-C: one try, synchronous. `call` returns "" for what failed. */
export function removeThingsNow(
  program: SandboxDeps["program"],
  label: string,
  call: (argv: string[]) => string,
): void {
  for (const kind of ["volume", "network"] as const) {
    const names = call(listThingsArgv(program, kind, label)).split("\n").filter(Boolean);
    if (names.length > 0) call(removeThingsArgv(program, kind, names));
  }
}
