/**
 * podman, as root or rootless. Its first process is a shell of ours that reaps (an `--init` would need catatonit, and a
 * dynamically linked one cannot run in a static image). Tried with 4.3.1, runc 1.1 and crun 1.8.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { HarborError } from "../lib/errors.ts";
import { platformOf } from "../lib/images/config.ts";
import { Shared } from "../lib/runtime/pool.ts";
import { inheritedEnv } from "../lib/runtime/runner.ts";
import { decisiveLine, engineFailure } from "../lib/sandbox/failure.ts";
import type { Missing, ProviderDeps, SandboxProvider } from "../lib/sandbox/provider.ts";
import { OciProvider } from "./_oci.ts";
import type { Program } from "./_oci_argv.ts";
import { mend, rootlessFaults, storageFaults } from "./_oci_diagnose.ts";
import type { EngineFacts } from "./_oci_engine.ts";
import { groupFault, THIS_MACHINE } from "./_podman_groups.ts";
import { fromRegistries } from "./_podman_digests.ts";

/** The part of `podman info --format json` that matters (4.3). */
interface Info {
  host?: {
    os?: string;
    arch?: string;
    cpus?: number;
    cgroupVersion?: string;
    cgroupControllers?: string[] | null;
    networkBackend?: string;
    /** What joins a user's containers to the network: one of them, with an empty path where it is missing. */
    slirp4netns?: { executable?: string };
    pasta?: { executable?: string };
    security?: { rootless?: boolean };
  };
  store?: { graphRoot?: string; graphDriverName?: string };
  version?: { Version?: string };
}

/** More at once only wait for the lock of its storage. */
const CONCURRENCY = 16;
const ANSWER_MS = 30_000;

export function podmanProvider(given: ProviderDeps): SandboxProvider {
  const deps = { ...given, env: inheritedEnv(given.env) };
  const program: Program = { engine: "podman", path: "podman" };
  const shared = new Shared<Info>();
  const info = (signal: AbortSignal) => shared.get("info", () => ask(deps, program, signal));

  return new OciProvider({
    program,
    concurrency: CONCURRENCY,
    facts: async (signal) => factsOf(await info(signal)),
    async registryDigests({ Id, RepoDigests, RootFS }, signal) {
      const digests = RepoDigests ?? [];
      if (digests.every((digest) => digest.startsWith("localhost/"))) return [];
      const { graphRoot = "", graphDriverName } = (await info(signal)).store ?? {};
      return fromRegistries(digests, RootFS?.Layers ?? [], join(graphRoot, `${graphDriverName}-images`, Id));
    },
    faults: async (signal) => faultsOf(await info(signal), deps.env),
  }, deps);
}

function faultsOf(info: Info, env: ProviderDeps["env"]): Missing[] {
  const { host, store } = info;
  const faults = storageFaults(store?.graphRoot ?? "/var/lib/containers/storage", "podman");
  if (host?.security?.rootless) faults.push(...rootlessFaults(env));
  if (store?.graphDriverName === "vfs") {
    faults.push({
      what: "storage driver vfs copies the whole image for every sandbox",
      fix: "use overlay: install fuse-overlayfs or a kernel of 5.13 or newer, then podman system reset",
    });
  }
  if (!factsOf(info).limits.memory) {
    const controllers = host?.cgroupControllers?.join(" ") || "none";
    faults.push({
      what: `limits are not enforced (cgroups ${host?.cgroupVersion ?? "?"}, controllers ${controllers})`,
      fix: "boot with unified cgroups and delegate cpu, memory and pids to users (the administrator)",
    });
  }
  return faults;
}

/** Rootless podman on cgroup v1 takes `--memory` and does not enforce it (4.3.1), so what it says is not enough. */
function factsOf({ host, version }: Info): EngineFacts {
  const powerless = host?.security?.rootless === true && host.cgroupVersion !== "v2";
  const can = (controller: string) => !powerless && (host?.cgroupControllers ?? []).includes(controller);
  return {
    version: version?.Version ?? "",
    platform: platformOf({ os: host?.os ?? "linux", architecture: host?.arch ?? "" }),
    cpus: host?.cpus ?? Infinity,
    limits: { cpu: can("cpu"), memory: can("memory"), pids: can("pids") },
    gpus: existsSync("/etc/cdi/nvidia.yaml") || existsSync("/var/run/cdi/nvidia.yaml"),
    nameServer: host?.networkBackend === "netavark" && THIS_MACHINE.has("aardvark-dns"),
    noGroups: groupFault(host ?? {}, THIS_MACHINE),
  };
}

async function ask({ runner, env }: ProviderDeps, { path }: Program, signal: AbortSignal): Promise<Info> {
  const told = await runner.run([path, "info", "--format", "json"], { env, signal, deadlineMs: ANSWER_MS, graceMs: 0 })
    .catch((error) => {
      if (!(error instanceof HarborError)) throw error;
      throw new HarborError("engine.missing", "podman is not installed", {
        hint: "install podman, or use --sandbox docker or --sandbox host",
      });
    });
  signal.throwIfAborted();
  try {
    if (told.exitCode === 0) return JSON.parse(told.stdout) as Info;
  } catch {
    // told below
  }
  const failure = engineFailure(told.stderr);
  const what = told.ended === "deadline"
    ? `podman did not answer within ${ANSWER_MS / 1000} s`
    : `podman info failed: ${failure?.line ?? decisiveLine(told.stderr)}`;
  const faults = process.getuid?.() === 0 ? [] : rootlessFaults(env);
  throw new HarborError("engine.missing", [what, ...faults.map((fault) => fault.what)].join("; "), {
    hint: faults[0]?.fix ?? (failure && mend(failure, "podman").fix) ?? "run podman info by hand to see all it says",
  });
}
