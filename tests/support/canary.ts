/**
 * Before tasks of tests do harm on purpose (remove programs, kill all they see), a harmless one proves that the `host`
 * sandbox keeps this machine out of their reach. Without that proof nothing harmful is started.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, rmSync } from "node:fs";
import { TempFolder, validate } from "./tasks.ts";

let proven: Promise<void> | undefined;

/** Resolves when a task on `host` can neither write this machine's files nor see its processes; rejects otherwise. */
export function hostIsOutOfReach(): Promise<void> {
  proven ??= prove();
  return proven;
}

async function prove(): Promise<void> {
  using folder = new TempFolder("canary");
  const name = `gh-canary-${crypto.randomUUID()}`;
  const places = ["/usr", "/etc", "/var", "/opt", "/tmp", "/root"].map((place) => `${place}/${name}`);
  const bystander = spawn("sleep", ["300"], { stdio: "ignore" });
  try {
    const task = folder.task("canary", {
      solve: `touch ${places.join(" ")}; kill -0 ${bystander.pid} 2>/dev/null && touch /tmp/sees-others; true`,
      test: `[ ! -e /tmp/sees-others ] && [ -e /tmp/${name} ] && echo 1 > /logs/verifier/reward.txt`,
    });
    const run = await validate(task, folder.join("out", "rollouts.jsonl"), ["--sandbox", "host"]);
    assert.equal(run.rows[0]?.reward, 1, `the canary did not come back: ${run.stderr}`);
    const written = places.filter((place) => existsSync(place));
    for (const place of written) rmSync(place);
    assert.deepEqual(written, [], "the host sandbox wrote to this machine");
  } finally {
    bystander.kill("SIGKILL");
  }
}
