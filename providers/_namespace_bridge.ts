/**
 * The private network of a group: a bridge in a network namespace of its own, which nothing leads out of, and for each
 * member another namespace joined to it by a pair of virtual interfaces. As a plain user all of them lie in one user
 * namespace, so no rights on this machine are needed. A public group's members each have a relay, as public sandboxes do.
 *
 * The first process of the bridge holds it all: it ends with its input, which we hold, or lives on when it is told so.
 */
import { HarborError } from "../lib/errors.ts";
import type { Runner, Started } from "../lib/runtime/runner.ts";
import type { Missing } from "../lib/sandbox/provider.ts";
import { decisiveLine } from "../lib/sandbox/failure.ts";
import { findProgram, type Machine, PATH, USER_NAMESPACE } from "./_namespace_machine.ts";
import { joinArgv, type Network, relayEnv, relayReady, relayWords } from "./_namespace_networks.ts";

/** Every group has it to itself: no address of it is known outside. */
const PREFIX = "10.213.0";
const PREFIX_BITS = 24;
/** Addresses of a /24 without network, broadcast and the bridge's own. */
export const MOST_MEMBERS = 253;

export const SUBNET = `${PREFIX}.0/${PREFIX_BITS}`;

/** Address of a group's n-th member, counted from 0. */
export const addressOf = (member: number): string => `${PREFIX}.${member + 2}`;

const ANSWER_MS = 20_000;

interface Deps {
  runner: Runner;
  machine: Machine;
}

export class Bridge {
  readonly #held = new Set<Started>();

  private constructor(private readonly deps: Deps, private readonly holder: Started) {}

  get pid(): number {
    return this.holder.pid;
  }

  /** Throws "sandbox.failed". */
  static async open(deps: Deps, ttlMs: number): Promise<Bridge> {
    const { machine, runner } = deps;
    const user = machine.ids === "all" ? [] : USER_NAMESPACE[machine.ids];
    const script = `echo up; read -r _ && exec sleep ${Math.ceil(ttlMs / 1000)}`;
    const argv = [machine.programs.unshare, ...user, "--net", "/bin/sh", "-c", script];
    const holder = await runner.start(argv, { env: { PATH } });
    const bridge = new Bridge(deps, holder);
    try {
      await answered(holder);
      await bridge.#ip({ pid: holder.pid }, ["link set lo up", "link add br0 type bridge", "link set br0 up"]);
      return bridge;
    } catch (error) {
      bridge.close();
      throw error;
    }
  }

  /** A namespace for the n-th member, with its address; `socket`: of the proxy, for a way out. Throws "sandbox.failed". */
  async join(member: number, socket: string | undefined): Promise<Network> {
    const { machine, runner } = this.deps;
    const inner = socket === undefined ? ["/bin/sh", "-c", "echo up; read -r _"] : relayWords(machine, socket);
    const argv = [...joinArgv(machine, { pid: this.holder.pid }), machine.programs.unshare, "--net", ...inner];
    const held = await runner.start(argv, { env: { ...(socket !== undefined && relayEnv()), PATH } });
    this.#held.add(held);
    if (socket === undefined) await answered(held);
    else await relayReady(held);
    const own = { pid: held.pid };
    const name = `v${member}`;
    await this.#ip({ pid: this.holder.pid }, [
      `link add ${name} type veth peer name eth0 netns ${held.pid}`,
      `link set ${name} master br0 up`,
    ]);
    const address = `${addressOf(member)}/${PREFIX_BITS}`;
    await this.#ip(own, ["link set lo up", `addr add ${address} dev eth0`, "link set eth0 up"]);
    return own;
  }

  /** The bridge outlives this process, until its time is up. */
  keep(): void {
    this.holder.stdin.write("keep\n");
  }

  close(): void {
    for (const held of this.#held) held.kill("SIGKILL");
    this.holder.kill("SIGKILL");
  }

  async #ip(network: Network, lines: readonly string[]): Promise<void> {
    const { machine, runner } = this.deps;
    const argv = [...joinArgv(machine, network), "ip", "-batch", "-"];
    const done = await runner.run(argv, { stdin: lines.join("\n") + "\n", env: { PATH }, deadlineMs: ANSWER_MS });
    if (done.ended === "exit" && done.exitCode === 0) return;
    throw new HarborError("sandbox.failed", `Cannot make the network of a group: ${decisiveLine(done.stderr)}`, {
      hint: "gym-harbor doctor tries it",
      details: { stderr: done.stderr, lines },
    });
  }
}

/** A namespace is there once its first process speaks. */
async function answered(started: Started): Promise<void> {
  let said = "";
  started.stderr.on("data", (chunk) => (said = (said + chunk).slice(-2000)));
  const spoke = await new Promise<boolean>((resolve) => {
    started.stdout.once("data", () => resolve(true));
    started.ended.then(() => resolve(false));
    setTimeout(() => resolve(false), ANSWER_MS).unref();
  });
  if (!spoke) {
    throw new HarborError("sandbox.failed", `Cannot make the network of a group: ${said.trim() || "no answer"}`);
  }
}

/** Why groups cannot be had here, found out by trying. */
export async function noBridge(deps: Deps): Promise<Missing | undefined> {
  if (findProgram("ip") === undefined) {
    return { what: "no networks of their own for Compose tasks: ip is not installed", fix: "apt-get install iproute2" };
  }
  try {
    const bridge = await Bridge.open(deps, 60_000);
    try {
      await bridge.join(0, undefined);
    } finally {
      bridge.close();
    }
    return undefined;
  } catch (error) {
    if (!(error instanceof HarborError)) throw error;
    return {
      what: `no networks of their own for Compose tasks: ${error.message}`,
      fix: "as administrator: modprobe -a bridge veth (and iproute2), or use --sandbox docker or podman",
    };
  }
}
