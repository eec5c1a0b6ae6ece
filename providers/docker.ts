/**
 * Docker, through its command line: whatever engine the user's docker reaches (a socket, DOCKER_HOST, a context) is the
 * one that is used. Tried with engine 20.10 and clients 20.10 and 28.2.
 */
import { HarborError } from "../lib/errors.ts";
import { platformOf } from "../lib/images/config.ts";
import { Shared } from "../lib/runtime/pool.ts";
import { inheritedEnv } from "../lib/runtime/runner.ts";
import { decisiveLine, engineFailure } from "../lib/sandbox/failure.ts";
import type { ProviderDeps, SandboxProvider } from "../lib/sandbox/provider.ts";
import { OciProvider } from "./_oci.ts";
import type { Program } from "./_oci_argv.ts";
import { mend, storageFaults } from "./_oci_diagnose.ts";
import { dockerClient } from "./builders/_docker_client.ts";
import type { EngineFacts } from "./_oci_engine.ts";

/** The part of `docker info --format '{{json .}}'` that matters (API 1.41). */
interface Info {
  ServerVersion?: string;
  Architecture?: string;
  NCPU?: number;
  MemoryLimit?: boolean;
  CpuCfsQuota?: boolean;
  PidsLimit?: boolean;
  DockerRootDir?: string;
  Runtimes?: Record<string, unknown>;
  OSType?: string;
  SecurityOptions?: string[] | null;
  ServerErrors?: string[] | null;
  /** podman's own shape: the docker on PATH is podman. */
  host?: unknown;
}

const CONCURRENCY = 32;
const ANSWER_MS = 20_000;

export function dockerProvider(given: ProviderDeps): SandboxProvider {
  const deps = { ...given, env: inheritedEnv(given.env) };
  const program: Program = { engine: "docker", path: "docker" };
  const shared = new Shared<Info>();
  const info = (signal: AbortSignal) => shared.get("info", () => ask(deps, program, signal));

  return new OciProvider({
    program,
    concurrency: CONCURRENCY,
    facts: async (signal) => factsOf(await info(signal)),
    async faults(signal) {
      const { DockerRootDir = "/var/lib/docker" } = await info(signal);
      const faults = storageFaults(DockerRootDir, "docker");
      if ((await dockerClient(deps, program.path)).kind === "classic") {
        faults.push({
          what: "images are built by the classic builder, which does not know RUN --mount",
          fix: "install the buildx plugin (docker-buildx-plugin), engine 23 or newer",
        });
      }
      return faults;
    },
  }, deps);
}

const factsOf = (info: Info): EngineFacts => ({
  version: info.ServerVersion ?? "",
  platform: platformOf({ os: info.OSType ?? "linux", architecture: info.Architecture ?? "" }),
  cpus: info.NCPU ?? Infinity,
  limits: { cpu: info.CpuCfsQuota ?? false, memory: info.MemoryLimit ?? false, pids: info.PidsLimit ?? false },
  gpus: Object.keys(info.Runtimes ?? {}).includes("nvidia"),
  nameServer: true,
});

async function ask({ runner, env }: ProviderDeps, { path }: Program, signal: AbortSignal): Promise<Info> {
  const told = await runner.run([path, "info", "--format", "{{json .}}"], {
    env,
    signal,
    deadlineMs: ANSWER_MS,
    graceMs: 0,
  })
    .catch((error) => {
      if (!(error instanceof HarborError)) throw error;
      throw missing("docker is not installed", "install Docker Engine, or use --sandbox podman or --sandbox host");
    });
  signal.throwIfAborted();
  if (told.ended === "deadline") {
    throw missing(`docker did not answer within ${ANSWER_MS / 1000} s`, "restart the Docker engine");
  }
  const info = parsed(told.stdout);
  if (info?.host !== undefined) throw missing("the docker on PATH is podman", "use --sandbox podman");
  if (info?.ServerVersion) {
    if (info.OSType === "linux" || info.OSType === undefined) return info;
    throw missing(`its engine runs ${info.OSType} containers`, "switch it to Linux containers");
  }
  const said = `${info?.ServerErrors?.join("\n") ?? ""}\n${told.stderr}`;
  const failure = engineFailure(said);
  throw missing(
    failure?.kind === "no-permission"
      ? "its socket may not be used by this user"
      : `its engine does not answer (${failure?.line ?? decisiveLine(said)})`,
    mend(failure ?? { kind: "daemon-down", line: "" }, "docker").fix,
  );
}

const missing = (what: string, fix: string): HarborError => new HarborError("engine.missing", what, { hint: fix });

function parsed(stdout: string): Info | undefined {
  try {
    return JSON.parse(stdout) as Info;
  } catch {
    return undefined;
  }
}
