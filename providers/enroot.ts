/**
 * enroot: a sandbox is a container of its own, unpacked from a `.sqsh` file, which we make once from an image of our
 * store (mksquashfs). One id only, ours, which is root inside; the network is this machine's; CPUs and memory are held
 * by control groups of ours where they may be written.
 *
 * Options (`sandbox.enroot.…`): `rc=image` runs an image's own /etc/rc, which is passed over otherwise; `pids_limit=N`.
 * `NEMO_GYM_ENROOT_SQSH_CACHE` moves the image files. enroot is not in the distributions that we test on: these sequences
 * are tested with a stand-in that records them.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { HarborError } from "../lib/errors.ts";
import { Shared } from "../lib/runtime/pool.ts";
import { decisiveLine } from "../lib/sandbox/failure.ts";
import type { ProviderDeps, SandboxProvider } from "../lib/sandbox/provider.ts";
import { ClusterProvider } from "./_cluster.ts";
import type { ClusterTool, ToolFacts } from "./_cluster_tool.ts";
import {
  containerPid,
  controlArgv,
  createArgv,
  enrootEnv,
  enterArgv,
  execArgv,
  listArgv,
  removeArgv,
  squashArgv,
  startArgv,
} from "./_enroot_argv.ts";
import { optionReader } from "./_namespace_options.ts";

const CONCURRENCY = 8;
const ANSWER_MS = 20_000;
const ONE_ID = "enroot maps this user's own id alone";

/** `uid` is ours. Throws "usage" for an option or value that there is not. */
export function enrootProvider(deps: ProviderDeps, uid = process.getuid?.()): SandboxProvider {
  const read = optionReader("enroot", deps.options, ["rc", "pids_limit"]);
  const bypassRc = read.one("rc", ["image", "none"] as const) !== "image";
  return new ClusterProvider(enrootTool(deps, bypassRc, uid === 0), deps, read.count("pids_limit"));
}

function enrootTool(deps: ProviderDeps, bypassRc: boolean, isRoot: boolean): ClusterTool {
  const shared = new Shared<ToolFacts>();
  return {
    name: "enroot",
    suffix: "sqsh",
    cacheVariable: "NEMO_GYM_ENROOT_SQSH_CACHE",
    concurrency: CONCURRENCY,
    facts: (signal) => shared.get("facts", () => look(deps, isRoot, signal)),
    env: enrootEnv,
    squash: (_facts, tree, to) => squashArgv(tree, to, isRoot),
    begin: (_facts, { id, base, image, ttlSeconds }) => {
      const log = join(base, "start.log");
      return [{ argv: createArgv(id, image) }, { argv: startArgv({ id, bypassRc, ttlSeconds, log }), log }];
    },
    control: (_facts, _place, pid) => controlArgv(pid),
    list: () => listArgv(),
    pid: containerPid,
    remove: (_path, id) => removeArgv(id),
    client: (_facts, _place, pid) => ({
      name: "enroot",
      outlivesLine: true,
      exec: (request) => execArgv(pid, request),
      enter: (_id, shell) => enterArgv(pid, shell),
      carried: (variables) => ({ ...variables }),
      remove: removeArgv,
      state: () => listArgv(),
      isRunning: (stdout, id) => containerPid(stdout, id) === pid,
      oomEvents: () => undefined,
      copyIn: () => undefined,
      copyOut: () => undefined,
    }),
  };
}

async function look({ runner, env }: ProviderDeps, isRoot: boolean, signal: AbortSignal): Promise<ToolFacts> {
  const ask = (argv: string[]) => runner.run(argv, { env, signal, deadlineMs: ANSWER_MS }).catch(() => undefined);
  const told = await ask(["enroot", "version"]);
  signal.throwIfAborted();
  const missing = (what: string, hint: string) => new HarborError("engine.missing", what, { hint });
  if (told === undefined) throw missing("enroot is not installed", "install enroot, or use --sandbox namespace");
  const version = told.stdout.trim();
  if (told.exitCode !== 0 || version === "") {
    throw missing(`enroot version failed: ${decisiveLine(told.stderr)}`, "see what enroot version says by hand");
  }
  if (await ask(["mksquashfs", "-version"]) === undefined) {
    throw missing("mksquashfs is not installed, which makes enroot's images", "install squashfs-tools");
  }
  return {
    version,
    path: "enroot",
    users: isRoot ? "any" : "own-id-only",
    usersReason: isRoot ? "" : ONE_ID,
    gpus: existsSync("/dev/nvidiactl"),
    faults: isRoot ? [] : [{ what: ONE_ID, fix: "tasks with another user need --sandbox podman or docker" }],
  };
}
