import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { after } from "node:test";
import { removeWhole } from "../../lib/sandbox/scratch.ts";
import { systemClock } from "../../lib/runtime/clock.ts";
import { openStore } from "../../lib/store/layout.ts";
import { importRootfsArchive } from "../../lib/store/rootfs.ts";
import { NamespaceProvider } from "../../providers/namespace.ts";
import { providerContract } from "../contract/provider_contract.ts";
import { needOf, oneId } from "../support/layers.ts";
import { rootfsTar } from "../support/rootfs.ts";

const folder = mkdtempSync(join(tmpdir(), "gh-ns-"));
const store = openStore(join(folder, "store"), { clock: systemClock });
after(() => removeWhole(folder));

const stateFiles = (): string[] => {
  const found = spawnSync("find", ["/tmp", "-maxdepth", "6", "-name", "sandbox.json", "-path", "*namespace-*"], {
    encoding: "utf8",
  });
  return found.stdout.split("\n").filter((path) => path !== "" && existsSync(path));
};

function processesNaming(word: string): number[] {
  return readdirSync("/proc").filter((name) => /^\d+$/.test(name)).map(Number).filter((pid) => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, "latin1").includes(word);
    } catch {
      return false;
    }
  });
}

for (const kind of ["host", "busybox"] as const) {
  const name = `gym-base:${kind}`;
  let imported: Promise<unknown> | undefined;
  providerContract({
    name: `namespace (${kind}) as ${process.getuid?.() === 0 ? "root" : "a plain user"}`,
    async make(deps) {
      const options = { names: [name], platform: "linux/amd64", runner: deps.runner };
      await (imported ??= importRootfsArchive(rootfsTar(kind), store, options, AbortSignal.timeout(120_000)));
      return new NamespaceProvider({ ...deps, store, unpackDir: join(folder, "trees") });
    },
    need: needOf(name),
    gaps: {
      ...(kind === "busybox" && {
        "names that a shell cannot export reach the command or are refused by name":
          "BusyBox's shell drops such names on the way to what it starts",
      }),
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
      ...processesNaming(`gym-harbor-${run}`).map((pid) => `process ${pid}`),
      ...["pids", "memory", "cpu"].flatMap((name) => leftGroups(join("/sys/fs/cgroup", name), run)),
    ],
  });
}

function leftGroups(parent: string, run: string): string[] {
  try {
    return readdirSync(parent).filter((name) => name.includes(run));
  } catch {
    return [];
  }
}
