/**
 * Network namespaces of public sandboxes, each held by a relay of ours that listens inside and hands connections to the
 * proxy outside (_namespace_proxy.ts).
 *
 * Our program takes some 60 ms to start, a whole sandbox takes less: so a relay is not started for every episode but
 * held, and lent to one sandbox after another, as many as run at a time. A namespace is lent again only when nothing of
 * the last sandbox is left in it: its processes are dead, it keeps no closed connections (tcp_max_tw_buckets 0), its
 * interfaces could not be changed (no CAP_NET_ADMIN inside), and its socket tables show our listener alone.
 */
import { readFileSync } from "node:fs";
import process from "node:process";
import { HarborError } from "../lib/errors.ts";
import type { Runner, Started } from "../lib/runtime/runner.ts";
import { selfArgv } from "../lib/runtime/self.ts";
import { shellQuote } from "../lib/runtime/runner.ts";
import { type Machine, PATH, USER_NAMESPACE } from "./_namespace_machine.ts";

/** Where the relay listens inside: above the ephemeral ports (ip_local_port_range), where no task expects a server. */
const RELAY_PORT = 61128;

const START_MS = 20_000;

export interface Network {
  /** Process that holds the namespaces: `nsenter -t pid`. */
  readonly pid: number;
}

interface Held extends Network {
  started: Started;
  gone: boolean;
}

/** Options of `nsenter` that join a held network. */
export function joinArgv(machine: Machine, network: Network): string[] {
  const user = machine.mode === "root" ? [] : ["--user", "--preserve-credentials"];
  return [machine.programs.nsenter, "--target", String(network.pid), ...user, "--net"];
}

/** Variables that lead programs inside to the relay; `more` is reached without it as well. */
export function proxyEnv(more: readonly string[] = []): Record<string, string> {
  const proxy = `http://127.0.0.1:${RELAY_PORT}`;
  const direct = ["localhost", "127.0.0.1", "::1", "0.0.0.0", ...more].join(",");
  const env: Record<string, string> = {};
  for (const name of ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"]) env[name] = proxy;
  for (const name of ["NO_PROXY", "no_proxy"]) env[name] = direct;
  return env;
}

/** Whether a socket table of /proc/net names a socket that is neither our listener nor a connection of it. */
export function hasForeignSockets(table: string): boolean {
  const ours = RELAY_PORT.toString(16).toUpperCase().padStart(4, "0");
  return table.trim().split("\n").slice(1).some((line) => {
    const local = line.trim().split(/\s+/)[1];
    return local !== undefined && !local.endsWith(`:${ours}`);
  });
}

export class Networks {
  #free: Held[] = [];
  #all = new Set<Held>();
  /** Started ahead of need and not asked for yet. */
  #warming: Promise<Held> | undefined;

  constructor(
    private readonly machine: Machine,
    private readonly deps: { runner: Runner; socket: string },
  ) {}

  /** A network nobody else uses, with its relay listening. Throws "sandbox.failed". */
  async take(): Promise<Network> {
    for (let held = this.#free.pop(); held !== undefined; held = this.#free.pop()) {
      if (!held.gone) return held;
    }
    const warming = this.#warming;
    this.#warming = undefined;
    return await (warming ?? this.#start());
  }

  /** Gives a network back after its sandbox ended. */
  give(network: Network): void {
    const held = network as Held;
    if (held.gone || !this.#all.has(held)) return;
    if (this.#isClean(held)) this.#free.push(held);
    else this.#end(held);
  }

  /** Starts one ahead of need, while tasks are prepared; who asks for it hears how that went. */
  warm(): void {
    if (this.#all.size > 0 || this.#warming !== undefined) return;
    this.#warming = this.#start();
    this.#warming.catch(() => {});
  }

  close(): void {
    for (const held of this.#all) this.#end(held);
  }

  #end(held: Held): void {
    held.gone = true;
    this.#all.delete(held);
    held.started.kill("SIGKILL");
  }

  #isClean(held: Held): boolean {
    try {
      return ["tcp", "tcp6", "udp", "udp6", "udplite", "raw", "raw6"].every((name) => {
        try {
          return !hasForeignSockets(readFileSync(`/proc/${held.pid}/net/${name}`, "latin1"));
        } catch {
          return true; // a protocol that this kernel does not have
        }
      });
    } catch {
      return false;
    }
  }

  async #start(): Promise<Held> {
    const { machine, deps } = this;
    if (machine.loopback === undefined) {
      throw new HarborError(
        "sandbox.failed",
        "Cannot bring up loopback: no ip, ifconfig, busybox, python3 or perl here",
        {
          hint: "install iproute2",
        },
      );
    }
    const user = machine.ids === "all" ? [] : USER_NAMESPACE[machine.ids];
    const made = [machine.programs.unshare, ...user, "--net"];
    const argv = [machine.programs.setpriv, "--pdeathsig", "KILL", ...made, ...relayWords(machine, deps.socket)];
    const started = await deps.runner.start(argv, { env: { ...relayEnv(), PATH } });
    const held: Held = { pid: started.pid, started, gone: false };
    this.#all.add(held);
    started.ended.then(() => {
      held.gone = true;
      this.#all.delete(held);
    });
    try {
      await relayReady(started);
    } catch (error) {
      this.#end(held);
      throw error;
    }
    return held;
  }
}

/** A script for a new network namespace that brings `lo` up and becomes the relay to `socket`. */
export function relayWords({ loopback }: Machine, socket: string): string[] {
  const script = `${loopback!.map(shellQuote).join(" ")} && ` +
    `{ echo 0 >/proc/sys/net/ipv4/tcp_max_tw_buckets; } 2>/dev/null; exec "$@"`;
  return ["/bin/sh", "-c", script, "gym-harbor", ...selfArgv(["relay", String(RELAY_PORT), socket])];
}

/** Resolves when a relay listens. Throws "sandbox.failed". */
export async function relayReady(started: Started): Promise<void> {
  let said = "";
  started.stderr.on("data", (chunk) => (said = (said + chunk).slice(-2000)));
  const ready = await new Promise<boolean>((resolve) => {
    let out = "";
    started.stdout.on("data", (chunk) => {
      out += chunk;
      if (out.includes("ready")) resolve(true);
    });
    started.ended.then(() => resolve(false));
    setTimeout(() => resolve(false), START_MS).unref();
  });
  if (ready) return;
  throw new HarborError(
    "sandbox.failed",
    `Cannot start the relay of a public sandbox: ${said.trim() || "no answer"}`,
    { hint: "gym-harbor doctor tries it; network=host below sandbox.<name> shares this machine's network instead" },
  );
}

/** From source the runtime needs its cache folders; the compiled file needs nothing. */
export function relayEnv(): Record<string, string> {
  const env: Record<string, string> = {};
  for (const name of ["HOME", "DENO_DIR", "XDG_CACHE_HOME"]) {
    const value = process.env[name];
    if (value !== undefined) env[name] = value;
  }
  return env;
}
