import { spawnSync } from "node:child_process";
import process from "node:process";
import { dockerProvider } from "../../providers/docker.ts";
import { providerContract } from "../contract/provider_contract.ts";
import { engineSkip, namedNeed, remainingContainers } from "../support/engines.ts";

for (const [name, image] of [["docker", "gym-base:host"], ["docker (BusyBox)", "gym-base:busybox"]] as const) {
  providerContract({
    name,
    make: dockerProvider,
    need: namedNeed(image),
    skip: engineSkip("docker"),
    destroy: (id) => void spawnSync("docker", ["rm", "-f", id], { env: process.env }),
    remains: ({ run }) => remainingContainers("docker", run),
  });
}
