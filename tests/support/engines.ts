/** What tests with a real engine need beside kit.ts: what to start from, and what is left of a run. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import process from "node:process";
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

/** Builds an image for a test, from the Dockerfile in `context`, by the engine's plainest means. */
export function buildWith(engine: Engine, context: string, tag: string): void {
  const format = engine === "podman" ? ["--format", "docker"] : [];
  const env = { ...process.env, DOCKER_BUILDKIT: "0" };
  const built = spawnSync(engine, ["build", ...format, "-t", tag, context], { env, encoding: "utf8" });
  assert.equal(built.status, 0, built.stderr);
}

/** Names of containers that carry the label of a run. */
export function remainingContainers(engine: Engine, run: string): string[] {
  const listed = spawnSync(engine, ["ps", "-a", "--filter", `label=gym-harbor.run=${run}`, "--format", "{{.Names}}"], {
    encoding: "utf8",
  });
  return listed.stdout.split("\n").filter(Boolean);
}
