import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { HostProvider } from "../../providers/host.ts";
import { NAMED_IMAGES, providerContract } from "../contract/provider_contract.ts";
import { oneId } from "../support/layers.ts";

/** Processes of a sandbox, by the control folder that only ours mount. */
function initsOf(word: string): number[] {
  return readdirSync("/proc").filter((name) => /^\d+$/.test(name)).map(Number).filter((pid) => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, "latin1").includes(word);
    } catch {
      return false;
    }
  });
}

const stateFiles = (): string[] => {
  const found = spawnSync("find", ["/tmp", "-maxdepth", "6", "-name", "sandbox.json", "-path", "*host-*"], {
    encoding: "utf8",
  });
  return found.stdout.split("\n").filter((path) => path !== "" && existsSync(path));
};

providerContract({
  name: `host as ${process.getuid?.() === 0 ? "root" : "a plain user"}`,
  make: (deps) => new HostProvider(deps),
  need: { taskId: "contract", source: { kind: "none" }, network: "no-network", limits: {}, users: [] },
  gaps: {
    ...Object.fromEntries(
      NAMED_IMAGES.map((promise) => [promise, "it starts from this machine's root, not from an image"]),
    ),
    ...(oneId() && Object.fromEntries([
      "setup runs as root before anything else, and its failure is told",
      "commands run as root, as a named user and as a number; the sandbox's user is the default",
      "a user's deadline and background processes are held too",
      "before and unpack run as root also for a command of another user",
    ].map((promise) => [promise, "this user has no range of ids: other users are refused at prepare"]))),
  },
  destroy: (id) => {
    for (const path of stateFiles()) {
      const state = JSON.parse(readFileSync(path, "utf8"));
      if (state.id === id) process.kill(state.init.pid, "SIGKILL");
    }
  },
  remains: ({ id, run }) => [
    ...stateFiles().filter((path) =>
      readFileSync(path, "utf8").includes(`"${run}"`) && (id === "" || path.includes(id))
    ),
    ...initsOf(`gym-harbor-${run}`).map((pid) => `process ${pid}`),
    ...["pids", "memory", "cpu"].flatMap((name) => leftGroups(join("/sys/fs/cgroup", name), run)),
  ],
});

function leftGroups(folder: string, run: string): string[] {
  try {
    return readdirSync(folder).filter((name) => name.includes(run));
  } catch {
    return [];
  }
}
