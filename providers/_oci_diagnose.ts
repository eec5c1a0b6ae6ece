/** What stands in the way of an engine on this machine, piece by piece, each with what mends it. */
import { existsSync, readFileSync } from "node:fs";
import process from "node:process";
import { HarborError } from "../lib/errors.ts";
import { spaceAt } from "../lib/files/disk.ts";
import { thisUser } from "../lib/runtime/user.ts";
import { decisiveLine, type EngineFailure, engineFailure } from "../lib/sandbox/failure.ts";
import type { Capabilities, Diagnosis, Missing } from "../lib/sandbox/provider.ts";
import type { Program } from "./_oci_argv.ts";
import type { SandboxDeps } from "./_oci_deps.ts";
import type { Engine, EngineFacts } from "./_oci_engine.ts";
import { holdOf } from "./_oci_limits.ts";

const LITTLE_BYTES = 2 * 1024 ** 3;

/** Where images lie: on a network file system, or nearly full. Nothing when it cannot be looked at from here. */
export function storageFaults(folder: string, engine: Program["engine"]): Missing[] {
  const space = existsSync(folder) ? spaceAt(folder) : undefined;
  if (space === undefined) return [];
  const faults: Missing[] = [];
  if (space.network !== undefined) {
    const fix = engine === "podman"
      ? "set graphroot in ~/.config/containers/storage.conf to a folder on a local disk, then run podman system reset"
      : "set data-root in /etc/docker/daemon.json to a local disk (the administrator)";
    faults.push({ what: `storage ${folder} lies on ${space.network}, where files cannot belong to other users`, fix });
  }
  if (space.freeBytes < LITTLE_BYTES) {
    faults.push({
      what: `only ${(space.freeBytes / 1024 ** 2).toFixed(0)} MiB free in ${folder}`,
      fix: `${engine} system prune, or a larger disk`,
    });
  }
  return faults;
}

/** Whether /etc/subuid or /etc/subgid gives the user a range. */
export function hasRange(text: string, user: string, uid: number): boolean {
  return text.split("\n").some((line) => {
    const [name, , count] = line.split(":");
    return (name === user || name === String(uid)) && Number(count) > 0;
  });
}

/** What a user without root needs before podman can work. */
export function rootlessFaults(env: Readonly<Record<string, string | undefined>>): Missing[] {
  const faults: Missing[] = [];
  const { name: username, uid } = thisUser();
  for (const file of ["/etc/subuid", "/etc/subgid"]) {
    if (hasRange(readable(file), username, uid)) continue;
    const flag = file.endsWith("uid") ? "--add-subuids" : "--add-subgids";
    faults.push({
      what: `no range for ${username} in ${file}: images with more than one user cannot be unpacked`,
      fix: `usermod ${flag} 100000-165535 ${username} (the administrator), then podman system migrate`,
    });
  }
  for (const program of ["newuidmap", "newgidmap"]) {
    const found = (env.PATH ?? "").split(":").some((folder) => existsSync(`${folder}/${program}`));
    if (!found) {
      faults.push({
        what: `${program} is not installed`,
        fix: "install the package uidmap or shadow-utils (the administrator)",
      });
    }
  }
  const runtime = env.XDG_RUNTIME_DIR;
  if (runtime === undefined || !existsSync(runtime)) {
    faults.push({
      what: runtime === undefined ? "XDG_RUNTIME_DIR is not set" : `XDG_RUNTIME_DIR ${runtime} is not there`,
      fix: `loginctl enable-linger ${username}, or export XDG_RUNTIME_DIR=/tmp/run-${uid} after mkdir -m 700 of it`,
    });
  }
  return faults;
}

/** Open files that this process, and so the engine's client, may hold. */
export function fileLimitFaults(limits: string): Missing[] {
  const soft = Number(/^Max open files\s+(\d+)/m.exec(limits)?.[1] ?? Infinity);
  if (soft >= 1024) return [];
  return [{ what: `only ${soft} open files are allowed`, fix: "ulimit -n 4096 before the start" }];
}

/** /proc/self/limits of this process. */
export const ownLimits = (): string => readable(`/proc/${process.pid}/limits`);

/** The answer to `doctor` and, in short, to the question before a run. Never throws for what this machine lacks. */
export async function diagnosis(
  engine: Engine,
  deps: SandboxDeps,
  signal: AbortSignal,
  depth: "quick" | "thorough",
): Promise<Diagnosis> {
  const name = engine.program.engine;
  let facts: EngineFacts;
  try {
    facts = await engine.facts(signal);
  } catch (error) {
    if (!(error instanceof HarborError)) throw error;
    return { name, usable: false, missing: [{ what: error.message, fix: error.hint ?? "" }], capabilities: null };
  }
  const missing: Missing[] = [];
  let usable = true;
  if (depth === "thorough") {
    const failure = await trial(deps, signal);
    if (failure !== undefined) {
      usable = false;
      missing.push(mend(failure, name));
    }
    missing.push(...await engine.faults(signal), ...fileLimitFaults(ownLimits()));
    if (facts.noGroups !== undefined) missing.push(facts.noGroups);
  }
  const capabilities: Capabilities = {
    networks: ["public", "no-network", "host"],
    limits: holdOf(facts.limits),
    users: "any",
    build: true,
    groups: facts.noGroups === undefined,
    gpu: facts.gpus,
    version: facts.version,
  };
  return { name, usable, missing, capabilities };
}

/**
 * Starts something tiny from any image at hand. Undefined: it worked, or there is no image to try. The limits are asked
 * for as well, because some machines accept them only on paper.
 */
async function trial(deps: SandboxDeps, signal: AbortSignal): Promise<EngineFailure | undefined> {
  const { program, runner, env } = deps;
  const listed = await runner.run([program.path, "images", "-q"], { env, signal, deadlineMs: 30_000 });
  const image = listed.stdout.split("\n").find(Boolean);
  if (image === undefined) return undefined;
  const argv = [
    program.path,
    "run",
    "--rm",
    "--pull",
    "never",
    "--network",
    "none",
    "--entrypoint",
    "/bin/sh",
    image,
    "-c",
    "echo gym-harbor",
  ];
  const tried = await runner.run(argv, { env, signal, deadlineMs: 60_000 });
  if (tried.stdout.includes("gym-harbor")) return undefined;
  const failure = engineFailure(tried.stderr);
  // An image without a shell says nothing about the engine.
  if (failure?.kind === "no-program" || failure?.kind === "not-executable") return undefined;
  return failure ??
    {
      kind: "busy",
      line: tried.ended === "deadline" ? "a container did not start within 60 s" : decisiveLine(tried.stderr),
    };
}

/** What mends a failure that doctor met. */
export function mend({ kind, line }: EngineFailure, engine: Program["engine"]): Missing {
  const fixes: Partial<Record<EngineFailure["kind"], string>> = {
    "daemon-down": "start it: systemctl start docker (the administrator), or set DOCKER_HOST to where it listens",
    "no-permission": `usermod -aG docker ${thisUser().name} (the administrator) and log in again, or use podman`,
    cgroups: 'use runc: [engine] runtime = "runc", cgroup_manager = "cgroupfs" in ~/.config/containers/containers.conf',
    rlimits:
      'lower the limits: [containers] default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"] in containers.conf',
    "init-missing": "install catatonit, or set init_path in containers.conf",
    "uid-range":
      `give ${thisUser().name} a range in /etc/subuid and /etc/subgid (the administrator), then podman system migrate`,
    "disk-full": `${engine} system prune, or a larger disk`,
    "limits-unsupported": "boot with unified cgroups and delegate cpu, memory and pids to users (the administrator)",
    "processes-full": "raise ulimit -u, or end other processes",
  };
  return {
    what: `a container could not be started: ${line}`,
    fix: fixes[kind] ?? `try by hand: ${engine} run --rm IMAGE true`,
  };
}

function readable(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
