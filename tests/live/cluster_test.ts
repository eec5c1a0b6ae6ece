/**
 * apptainer and enroot by stand-ins that run the commands in namespaces of util-linux: our launcher, markers, kill plan
 * and clean-up keep the provider's promises in the arrangement that we ask these tools for. The tools themselves cannot be
 * installed here.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { after } from "node:test";
import type { ImageNeed, SandboxProvider } from "../../lib/sandbox/provider.ts";
import { apptainerProvider } from "../../providers/apptainer.ts";
import { enrootProvider } from "../../providers/enroot.ts";
import { providerContract } from "../contract/provider_contract.ts";
import { IMAGE, STAND_INS, standIns, standInSkip, storeWithBusyBox } from "../support/stand_ins.ts";

const skip = standInSkip();
const need = (network: ImageNeed["network"]): ImageNeed => ({
  taskId: "contract",
  source: { kind: "named", reference: IMAGE },
  network,
  limits: {},
  users: [],
});

// The contract enters a kept sandbox as a person would, with the programs of this process's PATH.
process.env.PATH = `${STAND_INS}:${process.env.PATH}`;

const names = (folder: string): string[] => (existsSync(folder) ? readdirSync(folder) : []);

{
  const stand = standIns();
  process.env.STAND_IN_STATE = stand.env.STAND_IN_STATE;
  after(() => stand[Symbol.dispose]());
  const store = skip === undefined ? storeWithBusyBox(stand.folder) : undefined;
  providerContract({
    name: "apptainer (stand-in)",
    make: async (deps) => apptainerProvider({ ...deps, env: stand.env, store: await store, offline: true }),
    need: need("no-network"),
    skip,
    destroy: (id) => void spawnSync("apptainer", ["instance", "stop", "--force", id], { env: stand.env }),
    remains: ({ run }) => [
      ...names(join(stand.folder, "state/instances")).filter((name) => name.includes(run)),
    ],
  });
}

{
  const stand = standIns();
  after(() => stand[Symbol.dispose]());
  const store = skip === undefined ? storeWithBusyBox(stand.folder) : undefined;
  /** It has no sandbox without this machine's network, which the promises ask for where they do not care. */
  const withNetwork = (provider: SandboxProvider): SandboxProvider => {
    const open = provider.open.bind(provider);
    return Object.assign(provider, {
      open: ((spec, signal) => open({ ...spec, network: "public" }, signal)) satisfies SandboxProvider["open"],
    });
  };
  providerContract({
    name: "enroot (stand-in)",
    make: async (deps) => withNetwork(enrootProvider({ ...deps, env: stand.env, store: await store, offline: true })),
    need: need("public"),
    skip,
    gaps: {
      "no-network has loopback and no way out": "it shares this machine's network, and such tasks are refused",
      "two sandboxes do not meet on a port": "it shares this machine's network",
    },
    destroy: (id) => {
      for (const pid of execFileSync("pgrep", ["-f", `box .*/data/${id} `], { encoding: "utf8" }).trim().split("\n")) {
        spawnSync("kill", ["-KILL", pid]);
      }
    },
    remains: () => [],
  });
}
