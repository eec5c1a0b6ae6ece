/** What tests with a real engine need beside kit.ts: what to start from, and what is left of a run. */
import { spawnSync } from "node:child_process";
import type { ImageNeed } from "../../lib/sandbox/provider.ts";
import { missing, sandboxes } from "./kit.ts";

type Engine = "docker" | "podman";

/** Why tests with this engine cannot run here; undefined where they can. */
export function engineSkip(engine: Engine): string | undefined {
  if (!sandboxes().includes(engine)) return `GYM_HARBOR_TEST_SANDBOXES leaves ${engine} out`;
  return missing(engine) ?? undefined;
}

export const namedNeed = (reference: string): ImageNeed => ({
  taskId: "contract",
  source: { kind: "named", reference },
  network: "no-network",
  limits: {},
  users: [],
});

/** Names of containers that carry the label of a run. */
export function remainingContainers(engine: Engine, run: string): string[] {
  const listed = spawnSync(engine, ["ps", "-a", "--filter", `label=gym-harbor.run=${run}`, "--format", "{{.Names}}"], {
    encoding: "utf8",
  });
  return listed.stdout.split("\n").filter(Boolean);
}
