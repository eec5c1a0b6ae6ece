/**
 * Members of a podman network without a way out, on a machine where docker closed the firewall: docker sets the FORWARD
 * chain to DROP, and with br_netfilter that holds between two members of one bridge, too. podman opens it for its
 * networks with a way out and not for internal ones (netavark 1.4). One rule for our own bridge opens it, as docker does
 * for its own bridges; it goes with the network.
 */
import { readFileSync } from "node:fs";
import process from "node:process";
import { HarborError } from "../lib/errors.ts";
import type { RunResult } from "../lib/runtime/runner.ts";
import { decisiveLine } from "../lib/sandbox/failure.ts";
import type { SandboxDeps } from "./_oci_deps.ts";
import { inspectThingsArgv } from "./_oci_group_argv.ts";

const ANSWER_MS = 20_000;
const BRIDGES_FILTERED = "/proc/sys/net/bridge/bridge-nf-call-iptables";

/** Throws "sandbox.failed" where the rule is needed and cannot be set. */
export async function letMembersTalk(deps: SandboxDeps, network: string): Promise<void> {
  if (!await isClosed(deps)) return;
  const added = await changeRule(deps, "-I", network);
  if (added === undefined || added.exitCode === 0) return;
  throw new HarborError(
    "sandbox.failed",
    `Members of ${network} could not reach each other: this machine's firewall drops what bridges forward, and ` +
      `iptables says: ${decisiveLine(added.stderr)}`,
    { hint: "sysctl net.bridge.bridge-nf-call-iptables=0 (the administrator), or --sandbox docker" },
  );
}

/** Takes the rule back, where there is one. Before the network goes: only the engine knows its bridge. */
export async function closeAgain(deps: SandboxDeps, network: string): Promise<void> {
  if (await isClosed(deps)) await changeRule(deps, "-D", network);
}

/** Whether bridges are filtered here by a chain that drops. Only podman of this machine, as root, is concerned. */
async function isClosed({ program, runner, env }: SandboxDeps): Promise<boolean> {
  if (program.engine !== "podman" || process.getuid?.() !== 0 || env.CONTAINER_HOST || !bridgesAreFiltered()) {
    return false;
  }
  const told = await runner.run(["iptables", "-w", "5", "-S", "FORWARD"], { env, deadlineMs: ANSWER_MS })
    .catch(() => undefined); // no iptables: nobody closed anything with it
  return told !== undefined && closes(told.stdout);
}

/** Whether a chain, as `iptables -S` lists it, drops anything by itself; pure. */
export const closes = (chain: string): boolean => /^-P FORWARD DROP|-j (DROP|REJECT)\b/m.test(chain);

function bridgesAreFiltered(): boolean {
  try {
    return readFileSync(BRIDGES_FILTERED, "utf8").trim() === "1";
  } catch {
    return false; // br_netfilter is not loaded
  }
}

/** Undefined where the network has no bridge. */
async function changeRule(deps: SandboxDeps, action: "-I" | "-D", network: string): Promise<RunResult | undefined> {
  const { program, runner, env } = deps;
  const shown = await runner.run(inspectThingsArgv(program, "network", [network]), { env, deadlineMs: ANSWER_MS });
  const bridge = bridgeOf(shown.stdout);
  return bridge === undefined ? undefined : await runner.run(ruleArgv(action, bridge), { env, deadlineMs: ANSWER_MS });
}

const ruleArgv = (action: "-I" | "-D", bridge: string): string[] => [
  ...["iptables", "-w", "5", action, "FORWARD", "-i", bridge, "-o", bridge],
  ...["-m", "comment", "--comment", "gym-harbor", "-j", "ACCEPT"],
];

function bridgeOf(inspected: string): string | undefined {
  try {
    return (JSON.parse(inspected) as { network_interface?: string }[])[0]?.network_interface;
  } catch {
    return undefined;
  }
}
