import assert from "node:assert/strict";
import { test } from "node:test";
import { pauseMs, retryAfterMs } from "../../../lib/registry/retry.ts";

const NOW = new Date("2026-01-01T00:00:00Z");

const HEADERS: [header: string | null, ms: number | undefined][] = [
  ["7", 7000],
  [" 0 ", 0],
  ["Thu, 01 Jan 2026 00:00:30 GMT", 30_000],
  ["Wed, 31 Dec 2025 23:59:00 GMT", 0],
  [null, undefined],
  ["", undefined],
  ["soon", undefined],
  ["-3", undefined],
  ["1.5", undefined],
  ["2026-01-01", undefined],
];

for (const [header, ms] of HEADERS) {
  test(`retryAfterMs() reads ${JSON.stringify(header)} as ${ms}`, () => assert.equal(retryAfterMs(header, NOW), ms));
}

test("pauseMs() doubles from 1 s to at most 15 s, with full jitter", () => {
  assert.deepEqual([2, 3, 4, 5, 6, 9].map((next) => pauseMs(next, 1)), [1000, 2000, 4000, 8000, 15_000, 15_000]);
  assert.equal(pauseMs(3, 0.25), 500);
});
