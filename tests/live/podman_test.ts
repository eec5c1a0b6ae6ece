import { spawnSync } from "node:child_process";
import process from "node:process";
import { podmanProvider } from "../../providers/podman.ts";
import { providerContract } from "../contract/provider_contract.ts";
import { engineSkip, namedNeed, remainingContainers } from "../support/engines.ts";

for (const [name, image] of [["podman", "gym-base:host"], ["podman (BusyBox)", "gym-base:busybox"]] as const) {
  providerContract({
    name,
    make: podmanProvider,
    need: namedNeed(image),
    skip: engineSkip("podman"),
    destroy: (id) => void spawnSync("podman", ["rm", "-f", "-t", "0", id], { env: process.env }),
    remains: ({ run }) => remainingContainers("podman", run),
  });
}
