import { test } from "node:test";
import assert from "node:assert/strict";
import { systemClock as clock } from "../../../lib/runtime/clock.ts";

test("sleep() rejects with the signal's reason, at once when it is already aborted", async () => {
  const abort = new AbortController();
  const began = clock.ticks();
  setTimeout(() => abort.abort(new Error("enough")), 10);
  await assert.rejects(clock.sleep(60_000, abort.signal), /enough/);
  await assert.rejects(clock.sleep(60_000, abort.signal), /enough/);
  assert.ok(clock.ticks() - began < 5000);
});

test("deadline() aborts with TimeoutError after its time", async () => {
  const signal = clock.deadline(10);
  await clock.sleep(60_000, signal).catch(() => {});
  assert.equal((signal.reason as Error).name, "TimeoutError");
});

test("deadline() follows its parent", () => {
  const abort = new AbortController();
  const signal = clock.deadline(60_000, abort.signal);
  assert.equal(signal.aborted, false);
  abort.abort(new Error("stop"));
  assert.equal(signal.aborted, true);
  assert.match(String(signal.reason), /stop/);
});

for (const ms of [Infinity, 2 ** 31, 1e12]) {
  test(`deadline(${ms}) never comes by itself`, async () => {
    const signal = clock.deadline(ms);
    await clock.sleep(20);
    assert.equal(signal.aborted, false);
  });
}

for (const ms of [0, -5, 0.2]) {
  test(`deadline(${ms}) comes at once`, async () => {
    const signal = clock.deadline(ms);
    await clock.sleep(20);
    assert.equal(signal.aborted, true);
  });
}

test("now() is wall time, ticks() only grows", async () => {
  assert.ok(Math.abs(clock.now().getTime() - Date.now()) < 1000);
  const before = clock.ticks();
  await clock.sleep(2);
  assert.ok(clock.ticks() > before);
});

test("every() calls again and again until it is disposed of", async () => {
  let calls = 0;
  {
    using _ = clock.every(5, () => void calls++);
    while (calls < 3) await clock.sleep(5);
  }
  const before = calls;
  await clock.sleep(30);
  assert.equal(calls, before);
});
