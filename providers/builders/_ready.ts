/** Each tool asked whether it can build here: its version, its engine, its storage (spec/images-and-sandboxes §4.3). */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { HarborError } from "../../lib/errors.ts";
import type { BuilderOptions } from "../../lib/images/builder.ts";
import { platformOf } from "../../lib/images/config.ts";
import { thisUid } from "../../lib/runtime/user.ts";
import type { Runner, RunResult } from "../../lib/runtime/runner.ts";
import { decisiveLine, engineFailure } from "../../lib/sandbox/failure.ts";
import { mend, rootlessFaults } from "../_oci_diagnose.ts";
import type { Tool } from "./_argv.ts";
import { dockerClient } from "./_docker_client.ts";
import { buildahPlace, makePlace, NEEDED_BYTES } from "./_storage.ts";
import { type Space, spaceAt } from "../../lib/files/disk.ts";

type Env = Readonly<Record<string, string | undefined>>;

export interface ReadyDeps {
  runner: Runner;
  env: Env;
  options: BuilderOptions;
  /** What a folder's file system is; replaced in tests. */
  space?: (folder: string) => Space | undefined;
}

/** A tool that answered. */
export interface Ready {
  tool: Tool;
  /** Where it keeps images, when that is on this machine. */
  storage?: string;
  /** `os/arch` that its engine runs without emulation. */
  machine: string;
  warnings: string[];
}

const ANSWER_MS = 30_000;

/** Throws "engine.missing" naming what does not answer, "machine.lacks" for storage that cannot work. */
export async function ready(name: Tool["name"], deps: ReadyDeps, signal: AbortSignal): Promise<Ready> {
  const found = await READY[name](deps, signal);
  if (found.storage !== undefined) checkStorage(found.storage, name, deps.space ?? spaceAt);
  return found;
}

const READY: Record<Tool["name"], (deps: ReadyDeps, signal: AbortSignal) => Promise<Ready>> = {
  docker: dockerReady,
  podman: podmanReady,
  buildah: buildahReady,
};

const Version = z.looseObject({
  /** podman spells its fields in another way. */
  Client: z.looseObject({ APIVersion: z.string().optional() }).nullish(),
  Server: z.looseObject({ Version: z.string(), Os: z.string(), Arch: z.string() }).nullish(),
});

async function dockerReady(deps: ReadyDeps, signal: AbortSignal): Promise<Ready> {
  const told = await ask(deps, "docker", ["version", "--format", "{{json .}}"], signal);
  const version = Version.safeParse(parsed(told.stdout)).data;
  if (version?.Client?.APIVersion !== undefined) {
    throw new HarborError("engine.missing", "the docker on PATH is podman", { hint: "name it: ++builds.tool=podman" });
  }
  if (version?.Server == null) throw silent("docker", told, deps.env);
  const { kind, path } = await dockerClient(deps, "docker");
  const info = await ask(deps, "docker", ["info", "--format", "{{.DockerRootDir}}"], signal);
  const storage = info.stdout.trim();
  return {
    tool: { name: "docker", path, kind },
    // The engine of a remote DOCKER_HOST keeps its images elsewhere.
    ...(isLocal(deps.env) && storage.startsWith("/") && existsSync(storage) && { storage }),
    machine: platformOf({ os: version.Server.Os, architecture: version.Server.Arch }),
    warnings: [],
  };
}

const isLocal = ({ DOCKER_HOST }: Env): boolean => !DOCKER_HOST || DOCKER_HOST.startsWith("unix:");

const PodmanInfo = z.looseObject({
  host: z.looseObject({
    os: z.string(),
    arch: z.string(),
    security: z.looseObject({ rootless: z.boolean().optional() }).optional(),
    serviceIsRemote: z.boolean().optional(),
  }),
  store: z.looseObject({ graphRoot: z.string(), graphDriverName: z.string() }),
});

async function podmanReady(deps: ReadyDeps, signal: AbortSignal): Promise<Ready> {
  const told = await ask(deps, "podman", ["info", "--format", "json"], signal);
  const info = PodmanInfo.safeParse(parsed(told.stdout)).data;
  if (info === undefined) throw silent("podman", told, deps.env);
  const { host, store } = info;
  return {
    tool: { name: "podman", path: "podman" },
    ...(host.serviceIsRemote !== true && { storage: store.graphRoot }),
    machine: platformOf({ os: host.os, architecture: host.arch }),
    warnings: driverWarnings("podman", store.graphDriverName),
  };
}

const BuildahInfo = z.looseObject({
  host: z.looseObject({ os: z.string(), arch: z.string(), rootless: z.boolean().optional() }),
  store: z.looseObject({ GraphRoot: z.string(), GraphDriverName: z.string() }),
});

/** overlay where it can be used, else vfs, which works everywhere and copies whole images. */
async function buildahReady(deps: ReadyDeps, signal: AbortSignal): Promise<Ready> {
  const { env, options } = deps;
  const place = buildahPlace(env, options.storageDir);
  const faults: RunResult[] = [];
  // Who wrote a storage.conf for buildah has chosen a place already.
  const own = options.storageDir === undefined && env.CONTAINERS_STORAGE_CONF !== undefined;
  if (!own) makePlace(place);
  for (const driver of own ? [undefined] : ["overlay", "vfs"]) {
    const flags = driver === undefined
      ? []
      : ["--root", join(place, "root"), "--runroot", join(place, "run"), "--storage-driver", driver];
    const told = await ask(deps, "buildah", [...flags, "info"], signal);
    const info = told.exitCode === 0 ? BuildahInfo.safeParse(parsed(told.stdout)).data : undefined;
    if (info === undefined) {
      faults.push(told);
      continue;
    }
    return {
      tool: { name: "buildah", path: "buildah", flags },
      storage: info.store.GraphRoot,
      machine: platformOf({ os: info.host.os, architecture: info.host.arch }),
      warnings: driverWarnings("buildah", info.store.GraphDriverName),
    };
  }
  throw silent("buildah", faults.at(-1)!, env);
}

const driverWarnings = (tool: string, driver: string): string[] =>
  driver === "vfs"
    ? [`${tool} uses the storage driver vfs: each layer is a whole copy of the image, slow and large`]
    : [];

function checkStorage(folder: string, tool: Tool["name"], space: (folder: string) => Space | undefined): void {
  const found = space(folder);
  if (found?.network !== undefined && tool !== "docker") {
    throw new HarborError(
      "machine.lacks",
      `${tool} keeps images in ${folder}, on ${found.network}, where files cannot belong to other users (lchown, lsetxattr fail)`,
      {
        hint: tool === "buildah"
          ? "name a folder on a local disk: ++builds.storage_dir=DIR"
          : "set graphroot in ~/.config/containers/storage.conf to a folder on a local disk, then run podman system reset",
      },
    );
  }
  refuseFull(folder, tool, found);
}

/** Throws "machine.lacks" when there is no room for one more image; asked before every build as well. */
export function refuseFull(folder: string, tool: Tool["name"], found: Space | undefined): void {
  if (found === undefined || found.freeBytes >= NEEDED_BYTES) return;
  const mib = (bytes: number) => Math.floor(bytes / 1024 ** 2);
  throw new HarborError(
    "machine.lacks",
    `only ${mib(found.freeBytes)} MiB free in ${folder}, where ${tool} keeps images; at least ${
      mib(NEEDED_BYTES)
    } are needed`,
    {
      hint: tool === "buildah"
        ? "free some space, or name another folder: ++builds.storage_dir=DIR"
        : `${tool} system prune`,
      details: { class: "disk" },
    },
  );
}

async function ask(
  { runner, env }: ReadyDeps,
  program: string,
  args: string[],
  signal: AbortSignal,
): Promise<RunResult> {
  try {
    const told = await runner.run([program, ...args], { env, signal, deadlineMs: ANSWER_MS, graceMs: 0 });
    signal.throwIfAborted();
    return told;
  } catch (cause) {
    if (!(cause instanceof HarborError)) throw cause;
    throw new HarborError("engine.missing", `${program} cannot be started: ${cause.message}`, { cause });
  }
}

function silent(name: Tool["name"], told: RunResult, env: Env): HarborError {
  if (told.ended === "deadline") {
    return new HarborError("engine.missing", `${name} did not answer within ${ANSWER_MS / 1000} s`);
  }
  const failure = engineFailure(told.stderr);
  const what = name === "docker"
    ? `docker's engine does not answer: ${failure?.line ?? decisiveLine(told.stderr || told.stdout)}`
    : `${name} cannot use its storage: ${failure?.line ?? decisiveLine(told.stderr || told.stdout)}`;
  const faults = name !== "docker" && thisUid() !== 0 ? rootlessFaults(env) : [];
  return new HarborError("engine.missing", [what, ...faults.map((fault) => fault.what)].join("; "), {
    hint: faults[0]?.fix ??
      (failure && name !== "buildah" ? mend(failure, name).fix : "run it by hand to see all that it says"),
  });
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const QEMU: Record<string, string> = { amd64: "x86_64", arm64: "aarch64", "386": "i386" };

/** What is worth saying before an image for another platform is built. `handlers` are the names in binfmt_misc. */
export function emulationWarning(platform: string, machine: string, handlers: readonly string[]): string | undefined {
  if (platform === machine) return undefined;
  const architecture = platform.split("/")[1] ?? "";
  const wanted = QEMU[architecture] ?? architecture;
  if (handlers.some((name) => name === `qemu-${wanted}`)) return undefined;
  return `images for ${platform} are built on ${machine} without an emulator (no qemu-${wanted} in binfmt_misc): every RUN will fail with "exec format error"; ` +
    `install one (apt-get install qemu-user-static, or docker run --privileged --rm tonistiigi/binfmt --install ${architecture})`;
}
