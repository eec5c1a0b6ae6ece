import { test } from "node:test";
import assert from "node:assert/strict";
import type { Limits } from "../../lib/sandbox/provider.ts";
import type { EngineFacts } from "../../providers/_oci_engine.ts";
import { heldLimits, holdOf } from "../../providers/_oci_limits.ts";

const ABLE: EngineFacts = {
  version: "1",
  platform: "linux/amd64",
  cpus: 4,
  limits: { cpu: true, memory: true, pids: true },
  gpus: true,
  nameServer: true,
};
const UNABLE: EngineFacts = { ...ABLE, limits: { cpu: false, memory: false, pids: false }, gpus: false };

test("heldLimits() asks for what can be held, and notes every limit that cannot", () => {
  const rows: [Limits, EngineFacts, Limits, RegExp[]][] = [
    [{}, UNABLE, {}, []],
    [{ cpus: 4, memoryMb: 64, gpus: 1 }, ABLE, { cpus: 4, memoryMb: 64, gpus: 1 }, []],
    [{ cpus: 5 }, ABLE, {}, [/^cpus = 5: this machine has 4$/]],
    [{ cpus: 1, memoryMb: 64 }, UNABLE, {}, [/cannot limit CPUs/, /cannot limit memory/]],
    [{ storageMb: 10 }, ABLE, {}, [/^storage_mb = 10 is not enforced by podman$/]],
    [{ gpus: 0 }, ABLE, {}, []],
  ];
  for (const [asked, facts, limits, notes] of rows) {
    const held = heldLimits(asked, "podman", facts);
    assert.deepEqual(held.limits, limits);
    assert.equal(held.notes.length, notes.length, held.notes.join());
    notes.forEach((note, index) => assert.match(held.notes[index]!, note));
  }
});

test("holdOf() is enforced only where all limits hold", () => {
  const rows = [[true, true, true, "enforced"], [true, false, false, "partly"], [false, false, false, "none"]] as const;
  for (const [cpu, memory, pids, hold] of rows) assert.equal(holdOf({ cpu, memory, pids }), hold);
});
