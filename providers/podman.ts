/**
 * podman, as root or rootless. Its first process is a shell of ours that reaps (an `--init` would need catatonit, and a
 * dynamically linked one cannot run in a static image). Tried with 4.3.1, runc 1.1 and crun 1.8.
 */
import { existsSync } from "node:fs";
import process from "node:process";
import { HarborError } from "../lib/errors.ts";
import { Gate, Shared } from "../lib/runtime/pool.ts";
import { inheritedEnv } from "../lib/runtime/runner.ts";
import { decisiveLine, engineFailure } from "../lib/sandbox/failure.ts";
import type { Diagnosis, Missing, ProviderDeps, SandboxProvider } from "../lib/sandbox/provider.ts";
import { type EngineFacts, OciProvider } from "./_oci.ts";
import type { Program } from "./_oci_argv.ts";
import { fileLimitFaults, mend, ownLimits, rootlessFaults, storageFaults, trial } from "./_oci_diagnose.ts";

/** The part of `podman info --format json` that matters (4.3). */
interface Info {
  host?: {
    cpus?: number;
    cgroupVersion?: string;
    cgroupControllers?: string[] | null;
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
  const sandboxDeps = { ...deps, program, gate: new Gate(CONCURRENCY) };

  return new OciProvider({
    program,
    concurrency: CONCURRENCY,
    facts: async (signal) => factsOf(await info(signal)),
    builder: () => Promise.resolve({ builder: "buildah", path: program.path }),
    async diagnose(signal, depth): Promise<Diagnosis> {
      let found: Info;
      try {
        found = await info(signal);
      } catch (error) {
        if (!(error instanceof HarborError)) throw error;
        return {
          name: "podman",
          usable: false,
          missing: [{ what: error.message, fix: error.hint ?? "" }],
          capabilities: null,
        };
      }
      const facts = factsOf(found);
      const missing: Missing[] = [];
      let usable = true;
      if (depth === "thorough") {
        const failure = await trial(sandboxDeps, signal);
        if (failure !== undefined) usable = missing.push(mend(failure, "podman")) === 0;
        missing.push(...storageFaults(found.store?.graphRoot ?? "/var/lib/containers/storage", "podman"));
        if (found.host?.security?.rootless) missing.push(...rootlessFaults(deps.env));
        if (found.store?.graphDriverName === "vfs") {
          missing.push({
            what: "storage driver vfs copies the whole image for every sandbox",
            fix: "use overlay: install fuse-overlayfs or a kernel of 5.13 or newer, then podman system reset",
          });
        }
        if (!facts.limits.memory) {
          missing.push({
            what: `limits are not enforced (cgroups ${found.host?.cgroupVersion ?? "?"}, controllers ${
              found.host?.cgroupControllers?.join(" ") || "none"
            })`,
            fix: "boot with unified cgroups and delegate cpu, memory and pids to users (the administrator)",
          });
        }
        missing.push(...fileLimitFaults(ownLimits()));
      }
      return {
        name: "podman",
        usable,
        missing,
        capabilities: {
          networks: ["public", "no-network", "host"],
          limits: facts.limits.cpu && facts.limits.memory && facts.limits.pids
            ? "enforced"
            : facts.limits.memory
            ? "partly"
            : "none",
          users: "any",
          build: true,
          gpu: facts.gpus,
          version: facts.version,
        },
      };
    },
  }, deps);
}

/** Rootless podman on cgroup v1 takes `--memory` and does not enforce it (4.3.1), so what it says is not enough. */
function factsOf({ host, version }: Info): EngineFacts {
  const powerless = host?.security?.rootless === true && host.cgroupVersion !== "v2";
  const can = (controller: string) => !powerless && (host?.cgroupControllers ?? []).includes(controller);
  return {
    version: version?.Version ?? "",
    cpus: host?.cpus ?? Infinity,
    limits: { cpu: can("cpu"), memory: can("memory"), pids: can("pids") },
    gpus: existsSync("/etc/cdi/nvidia.yaml") || existsSync("/var/run/cdi/nvidia.yaml"),
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
