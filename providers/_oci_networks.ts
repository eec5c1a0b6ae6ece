/**
 * Networks and volumes of groups. A network is made with a subnet of ours, one at a time on this machine, since engines
 * race there (F5).
 */
import { readFileSync } from "node:fs";
import { HarborError } from "../lib/errors.ts";
import { randomBelow } from "../lib/runtime/random.ts";
import type { RunResult } from "../lib/runtime/runner.ts";
import { decisiveLine, engineFailure } from "../lib/sandbox/failure.ts";
import type { SandboxDeps } from "./_oci_deps.ts";
import { letMembersTalk } from "./_oci_firewall.ts";
import { networkArgv, type NetworkRequest, volumeArgv } from "./_oci_group_argv.ts";
import { engineLock } from "./_oci_lock.ts";
import { removeThings } from "./_oci_things.ts";
import { freeSubnets, prefixFor, type Range, routedRanges } from "./_oci_subnets.ts";

const ANSWER_MS = 60_000;
const LOCK_MS = 120_000;
/** Subnets that the engine refuses as taken before something else must be wrong. */
const MOST_TAKEN = 200;

export interface SubnetPool {
  /** As the option gives it. */
  text: string;
  range: Range;
}

/** Makes a network of a subnet that nobody uses and returns the subnet. Throws "sandbox.failed". */
export async function makeNetwork(
  deps: SandboxDeps,
  request: Omit<NetworkRequest, "subnet"> & { members: number },
  pool: SubnetPool,
  signal: AbortSignal,
): Promise<string> {
  const { program, runner, env, clock } = deps;
  using _lock = await engineLock(deps, "networks", { waitMs: LOCK_MS, signal, doing: "makes a network" });
  const prefix = prefixFor(request.members);
  const start = randomBelow(pool.range.last - pool.range.first + 1);
  let tried = 0;
  for (const subnet of freeSubnets(pool.range, prefix, routedRanges(readRoutes()), start)) {
    // Not to be ended half-way: what the engine makes after our client is gone nobody would know of.
    const made = await runner.run(networkArgv(program, { ...request, subnet }), { env, deadlineMs: ANSWER_MS });
    if (made.ended === "exit" && made.exitCode === 0) {
      if (request.internal) {
        await letMembersTalk(deps, request.name).catch((error) => undone(deps, request.name, error));
      }
      return subnet;
    }
    if (!isTaken(made) || ++tried > MOST_TAKEN) throw notMade(program.path, request.name, made);
    signal.throwIfAborted();
    await clock.sleep(0);
  }
  throw new HarborError("sandbox.failed", `No subnet of ${2 ** (32 - prefix)} addresses is free in ${pool.text}`, {
    hint:
      `gym-harbor sandbox gc removes what dead runs left; ++sandbox.${program.engine}.subnet_pool=172.31.0.0/16 takes another range`,
  });
}

async function undone(deps: SandboxDeps, network: string, error: unknown): Promise<never> {
  await removeThings(deps, "network", [network]);
  throw error;
}

/** docker 20.10 to 28, podman 4.3 (netavark, CNI). */
const isTaken = ({ stderr }: RunResult): boolean =>
  /pool overlaps|overlapping ipv4|is already used on the host|already being used|conflicts with network|overlaps with/i
    .test(stderr);

function notMade(engine: string, name: string, { stderr, ended }: RunResult): HarborError {
  const failure = engineFailure(stderr);
  if (failure?.kind === "daemon-down" || failure?.kind === "no-permission") {
    return new HarborError("engine.missing", `${engine} does not answer: ${failure.line}`, {
      hint: "see gym-harbor doctor",
    });
  }
  const why = ended === "deadline" ? `no answer within ${ANSWER_MS / 1000} s` : failure?.line ?? decisiveLine(stderr);
  return new HarborError("sandbox.failed", `Cannot make the network ${name}: ${engine} says: ${why}`, {
    hint: "see gym-harbor doctor; gym-harbor sandbox gc removes networks that dead runs left",
  });
}

function readRoutes(): string {
  try {
    return readFileSync("/proc/net/route", "utf8");
  } catch {
    return "";
  }
}

export async function makeVolume(
  { program, runner, env }: SandboxDeps,
  name: string,
  labels: Readonly<Record<string, string>>,
): Promise<void> {
  const made = await runner.run(volumeArgv(program, name, labels), { env, deadlineMs: ANSWER_MS });
  if (made.ended === "exit" && made.exitCode === 0) return;
  const why = engineFailure(made.stderr)?.line ?? decisiveLine(made.stderr);
  throw new HarborError("sandbox.failed", `Cannot make the volume ${name}: ${program.path} says: ${why}`);
}
