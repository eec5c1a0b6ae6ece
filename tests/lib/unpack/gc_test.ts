import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, utimesSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { basename, dirname, join } from "node:path";
import { test } from "node:test";
import { systemClock } from "../../../lib/runtime/clock.ts";
import { systemRunner } from "../../../lib/runtime/runner.ts";
import { thisUid } from "../../../lib/runtime/user.ts";
import { collectTrees, planTreeGc, type UnpackedTree } from "../../../lib/unpack/gc.ts";
import { layerTrees } from "../../../lib/unpack/trees.ts";
import { makeImage, never, putImage, testStore } from "../../support/images.ts";
import { tar } from "../../support/tar.ts";
import { TempFolder } from "../../support/tasks.ts";

const DAY = 24 * 3_600_000;
const NOW = 100 * DAY;

const tree = (diffId: string, ageMs: number, held = false): UnpackedTree => ({
  path: `/x/${diffId}`,
  diffId,
  bytes: 10,
  usedAtMs: NOW - ageMs,
  held,
});
const ALL = [tree("new", 1000), tree("middle", 5 * DAY), tree("old", 50 * DAY), tree("mounted", 90 * DAY, true)];

const CASES: [name: string, options: Parameters<typeof planTreeGc>[1], gone: string[]][] = [
  ["nothing asked", {}, []],
  ["by age", { olderThanMs: 20 * DAY }, ["old"]],
  ["by age 0: neither what was used this hour nor what is mounted", { olderThanMs: 0 }, ["old", "middle"]],
  ["by size, the longest unused first", { maxBytes: 30 }, ["old"]],
  ["by size, what is in use stays", { maxBytes: 0 }, ["old", "middle"]],
  ["layers of no image", { wanted: new Set(["old"]) }, ["middle"]],
];
for (const [name, options, gone] of CASES) {
  test(`planTreeGc(): ${name}`, () => {
    assert.deepEqual(planTreeGc(ALL, options, NOW).map(({ diffId }) => diffId), gone);
  });
}

test("collectTrees() removes unused trees and half-made ones of the dead, never what this process uses", async () => {
  using temp = new TempFolder("gc");
  const store = testStore(temp.join("images"));
  const unpack = { unpackDir: temp.join("trees"), clock: systemClock, runner: systemRunner() };
  const image = await putImage(store, makeImage([tar(["file", "a", "x"])]), []);
  const { folders } = await layerTrees(image, store, `single:${thisUid()}`, unpack, never);
  const place = dirname(dirname(folders[0]!));
  const dead = join(place, ".new-0123-dead");
  mkdirSync(join(dead, "t"), { recursive: true });
  const old = new Date(Date.now() - 50 * DAY);
  utimesSync(join(dirname(folders[0]!), "layer.json"), old, old);
  const options = { olderThanMs: DAY, dryRun: false };
  assert.deepEqual((await collectTrees(unpack.unpackDir, options, systemClock)).removed, [], "in use");
  assert.ok(existsSync(folders[0]!));
  assert.equal(existsSync(dead), false);
  // As a process that has ended: its lease is of nobody.
  for (const name of readdirSync(join(place, ".leases"))) {
    writeFileSync(join(place, ".leases", name), JSON.stringify({ host: hostname(), pid: 2 ** 22, start: "1" }));
  }
  const report = await collectTrees(unpack.unpackDir, options, systemClock);
  assert.deepEqual(report.removed.map(({ path }) => basename(path)), [basename(dirname(folders[0]!))]);
  assert.equal(existsSync(folders[0]!), false);
  assert.deepEqual(readdirSync(join(place, ".leases")), []);
});
