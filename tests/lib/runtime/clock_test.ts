import { test } from "node:test";
import assert from "node:assert/strict";
import { settlesWithin, systemClock as clock } from "../../../lib/runtime/clock.ts";

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

test("after() calls once, unless it is disposed of before; never beyond the longest timer", async () => {
  const calls: string[] = [];
  const timers = ([["soon", 1], ["at once", -5], ["never", Infinity], ["too late", 2 ** 31]] as const).map((
    [name, ms],
  ) => clock.after(ms, () => calls.push(name)));
  clock.after(5, () => calls.push("disposed of"))[Symbol.dispose]();
  await clock.sleep(40);
  assert.deepEqual(calls.sort(), ["at once", "soon"]);
  for (const timer of timers) timer[Symbol.dispose]();
});

test("settlesWithin() counts a good end and a bad one, and does not wait for a late one", async () => {
  assert.equal(await settlesWithin(clock.sleep(5), 60_000, clock), true);
  assert.equal(await settlesWithin(Promise.reject(new Error("bad")), 60_000, clock), true);
  const abort = new AbortController();
  const late = clock.sleep(60_000, abort.signal).catch(() => {});
  assert.equal(await settlesWithin(late, 5, clock), false);
  abort.abort();
  await late;
});
