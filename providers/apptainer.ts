/**
 * apptainer (singularity as well): a sandbox is an instance on a `.sif` file, which we make once from an image of our
 * store. Where this user is not root it runs as root by `--fakeroot`. Its network is this machine's, or none.
 *
 * Options (`sandbox.apptainer.…`): `writable=disk|memory` (an overlay on the local disk, or apptainer's own tmpfs, which
 * sites often hold at 64 MiB); `pids_limit=N`. apptainer is not in the distributions that we test on: these sequences are
 * tested with a stand-in that records them.
 */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { HarborError } from "../lib/errors.ts";
import { Shared } from "../lib/runtime/pool.ts";
import { decisiveLine } from "../lib/sandbox/failure.ts";
import type { ProviderDeps, SandboxProvider } from "../lib/sandbox/provider.ts";
import {
  buildArgv,
  carried,
  controlArgv,
  enterArgv,
  execArgv,
  instancePid,
  listArgv,
  probeNoNetworkArgv,
  startArgv,
  stopArgv,
} from "./_apptainer_argv.ts";
import { ClusterProvider } from "./_cluster.ts";
import type { ClusterTool, ToolFacts } from "./_cluster_tool.ts";
import { findProgram } from "./_namespace_machine.ts";
import { optionReader } from "./_namespace_options.ts";

const CONCURRENCY = 8;
const ANSWER_MS = 20_000;

/** Throws "usage" for an option or value that there is not. */
export function apptainerProvider(deps: ProviderDeps): SandboxProvider {
  const read = optionReader("apptainer", deps.options, ["writable", "pids_limit"]);
  const writable = read.one("writable", ["disk", "memory"] as const) ?? "disk";
  return new ClusterProvider(apptainerTool(deps, writable), deps, read.count("pids_limit"));
}

function apptainerTool(deps: ProviderDeps, writable: "disk" | "memory"): ClusterTool {
  const shared = new Shared<ToolFacts>();
  const fakeroot = process.getuid?.() !== 0;
  return {
    name: "apptainer",
    suffix: "sif",
    cacheVariable: "GYM_HARBOR_SIF_CACHE",
    concurrency: CONCURRENCY,
    facts: (signal) => shared.get("facts", () => look(deps, signal)),
    env: (base) => ({ APPTAINER_TMPDIR: base, APPTAINER_CACHEDIR: join(base, "cache") }),
    squash: ({ path }, tree, to) => buildArgv(path, tree, to),
    probeNoNetwork: ({ path }, image) => probeNoNetworkArgv(path, image, fakeroot),
    begin: ({ path }, { id, base, image, network, gpu }) => {
      const log = join(base, "start.log");
      const overlay = writable === "disk" ? join(base, "overlay") : undefined;
      return [{ argv: startArgv(path, { id, image, overlay, fakeroot, network, gpu, log }), log }];
    },
    control: ({ path }, { id }) => controlArgv(path, id, fakeroot),
    list: ({ path }, id) => listArgv(path, id),
    pid: instancePid,
    remove: stopArgv,
    client: ({ path }) => ({
      name: path,
      outlivesLine: true,
      exec: (request) => execArgv(path, fakeroot, request),
      enter: (id, shell) => enterArgv(path, id, fakeroot, shell),
      carried,
      remove: (id) => stopArgv(path, id),
      state: (id) => listArgv(path, id),
      isRunning: (stdout, id) => instancePid(stdout, id) !== undefined,
      oomEvents: () => undefined,
      copyIn: () => undefined,
      copyOut: () => undefined,
    }),
  };
}

async function look({ runner, env }: ProviderDeps, signal: AbortSignal): Promise<ToolFacts> {
  let problem = "";
  for (const path of ["apptainer", "singularity"]) {
    const told = await runner.run([path, "--version"], { env, signal, deadlineMs: ANSWER_MS }).catch(() => undefined);
    signal.throwIfAborted();
    const version = /(\d+\.\d+\S*)/.exec(told?.stdout ?? "")?.[1];
    if (told?.exitCode === 0 && version !== undefined) return factsOf(path, version, env);
    if (told !== undefined) problem ||= `${path} --version failed: ${decisiveLine(told.stderr)}`;
  }
  throw new HarborError("engine.missing", problem || "apptainer is not installed", {
    hint: "install apptainer, or load its module (module load apptainer), or use --sandbox namespace",
  });
}

/** Root has every id; another user those of his range, or root alone. */
function factsOf(path: string, version: string, env: ProviderDeps["env"]): ToolFacts {
  const facts: ToolFacts = {
    version,
    path,
    users: "any",
    usersReason: "",
    gpus: existsSync("/dev/nvidiactl"),
    faults: [],
  };
  if (process.getuid?.() === 0 || (hasRange(env.USER) && findProgram("newuidmap") !== undefined)) return facts;
  const usersReason = findProgram("newuidmap") === undefined
    ? "newuidmap is not installed"
    : "/etc/subuid gives this user no range of ids";
  const user = env.USER ?? process.getuid?.() ?? "";
  const fix = `an administrator mends it: apt-get install uidmap; usermod --add-subuids 100000-165535 ` +
    `--add-subgids 100000-165535 ${user}`;
  return { ...facts, users: "own-id-only", usersReason, faults: [{ what: usersReason, fix }] };
}

function hasRange(user: string | undefined): boolean {
  try {
    const names = [user, String(process.getuid?.())];
    return readFileSync("/etc/subuid", "utf8").split("\n").some((line) => names.includes(line.split(":")[0]!));
  } catch {
    return false;
  }
}
