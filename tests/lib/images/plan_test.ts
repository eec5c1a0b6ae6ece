import { test } from "node:test";
import assert from "node:assert/strict";
import { imageNeedOf } from "../../../lib/images/plan.ts";
import type { Task } from "../../../lib/task/task.ts";

const HASH = "0123456789abcdef0123456789abcdef";

function task(image: Partial<Task["image"]>, environment: Partial<Task["environment"]> = {}): Task {
  return {
    id: "t",
    contextHash: HASH,
    image: { mode: "none", uploads: false, ...image },
    environment: { build_timeout_sec: 600, os: "linux", env: {}, mcp_servers: [], ...environment },
    agent: { timeout_sec: 600, user: "agent" },
    verifier: { timeout_sec: 600, env: {}, collect: [], inputs: [] },
  } as unknown as Task;
}

test("imageNeedOf() builds every Dockerfile that counts whole, under the name of its context hash", () => {
  for (const mode of ["pull", "overlay", "build", "prebuilt"] as const) {
    const need = imageNeedOf(task({ mode, reference: "debian:12", dockerfile: "/d/t/environment/Dockerfile" }));
    assert.deepEqual(need.source, {
      kind: "dockerfile",
      context: "/d/t/environment",
      dockerfile: "/d/t/environment/Dockerfile",
      tag: `hb__${HASH}`,
      buildTimeoutMs: 600_000,
    });
  }
});

test("imageNeedOf() names a ready image as written, or that there is none", () => {
  const named = imageNeedOf(
    task({ mode: "prebuilt", reference: "python:3.12" }, { cpus: 2, memory_mb: 512, network_mode: "no-network" }),
  );
  assert.deepEqual(named.source, { kind: "named", reference: "python:3.12" });
  assert.equal(named.network, "no-network");
  assert.deepEqual(named.limits, { cpus: 2, memoryMb: 512, storageMb: undefined, gpus: undefined });
  assert.deepEqual(named.users, ["agent", undefined]);
  assert.deepEqual(imageNeedOf(task({ mode: "none" })).source, { kind: "none" });
});

test("imageNeedOf() gives main of a Compose file alone what the task defines", () => {
  assert.deepEqual(imageNeedOf(task({ mode: "compose", reference: "python:3.12" })).source, {
    kind: "named",
    reference: "python:3.12",
  });
  assert.deepEqual(imageNeedOf(task({ mode: "compose" })).source, { kind: "none" });
});

test("imageNeedOf() refuses what this version does not start, by name", () => {
  assert.throws(() => imageNeedOf(task({ mode: "none" }, { network_mode: "allowlist" })), {
    code: "not-built",
    message: /allowlist/,
  });
});
