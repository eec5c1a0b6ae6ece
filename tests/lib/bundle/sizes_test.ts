import assert from "node:assert/strict";
import { test } from "node:test";
import { refuseFullDisk, type Sizes, tellingProgress } from "../../../lib/bundle/_sizes.ts";
import { systemClock } from "../../../lib/runtime/clock.ts";
import { never } from "../../support/images.ts";

test("progress is told by tenths, not many times in a second, and at least every ten seconds", () => {
  const told: string[] = [];
  let now = 0;
  const clock = { ...systemClock, ticks: () => now };
  const progress = tellingProgress("exporting", 1000, {
    clock,
    emit: (event) => event.kind === "note" && told.push(`${now} ${event.text}`),
  }, never);
  for (const [at, bytes] of [[10, 300], [20, 100], [1100, 0], [1200, 100], [2000, 10], [2200, 100], [13_000, 1]]) {
    now = at!;
    progress.passed(bytes!);
  }
  assert.deepEqual(told, [
    "1100 exporting: 400 B of 1.00 kB (40 %)",
    "2200 exporting: 610 B of 1.00 kB (61 %)",
    "13000 exporting: 611 B of 1.00 kB (61 %)",
  ]);
});

test("a disk without the room is refused before anything is written", async () => {
  const sizes: Sizes = {
    files: 1,
    dataset: 1e18,
    images: 0,
    blobs: 0,
    blobBytes: 0,
    unknown: 0,
    binary: 0,
    kept: 0,
  };
  await assert.rejects(refuseFullDisk("/", sizes), /Cannot write 1000 PB to \/: its disk has .* free/);
});
