import { test } from "node:test";
import assert from "node:assert/strict";
import { Gate, pool, Shared } from "../../../lib/runtime/pool.ts";

const tick = (ms = 1) => new Promise<void>((resolve) => setTimeout(resolve, ms));
const never = new AbortController().signal;

test("pool() starts in order and never more than the limit", async () => {
  const started: number[] = [];
  let running = 0, most = 0;
  await pool([1, 2, 3, 4, 5, 6, 7], 3, async (item) => {
    started.push(item);
    most = Math.max(most, ++running);
    await tick(5 - (item % 3));
    running--;
  }, never);
  assert.deepEqual(started, [1, 2, 3, 4, 5, 6, 7]);
  assert.equal(most, 3);
});

test("pool() takes from the plan only what it can start", async () => {
  let pulled = 0;
  function* plan() {
    for (let index = 0; index < 1000; index++) {
      pulled++;
      yield index;
    }
  }
  const abort = new AbortController();
  await pool(plan(), 2, async (item) => {
    await tick();
    if (item === 5) abort.abort();
  }, abort.signal);
  assert.ok(pulled < 12, `${pulled} pulled`);
});

test("pool() starts nothing after an abort and waits for what runs", async () => {
  const abort = new AbortController();
  const started: number[] = [];
  let ended = 0;
  await pool([1, 2, 3, 4], 2, async (item) => {
    started.push(item);
    if (item === 2) abort.abort();
    await tick(10);
    ended++;
  }, abort.signal);
  assert.deepEqual(started, [1, 2]);
  assert.equal(ended, 2);
});

for (
  const [what, fail] of [
    ["rejects", () => Promise.reject(new Error("broke"))],
    ["throws", () => {
      throw new Error("broke");
    }],
  ] as const
) {
  test(`pool() rethrows the first error once all has ended (work ${what})`, async () => {
    let ended = 0;
    const started: number[] = [];
    await assert.rejects(
      pool([2, 1, 3, 4, 5], 2, (item) => {
        started.push(item);
        return item === 1 ? fail() : tick(10).then(() => void ended++);
      }, never),
      /broke/,
    );
    assert.deepEqual(started, [2, 1]);
    assert.equal(ended, 1);
  });
}

test("pool() waits for what runs when the plan itself fails", async () => {
  let ended = 0;
  function* plan() {
    yield 1;
    throw new Error("no plan");
  }
  await assert.rejects(
    pool(plan(), 4, async () => {
      await tick(10);
      ended++;
    }, never),
    /no plan/,
  );
  assert.equal(ended, 1);
});

test("Shared makes once per key and forgets a failure", async () => {
  const shared = new Shared<number>();
  let made = 0;
  const make = () => Promise.resolve(++made);
  assert.deepEqual(await Promise.all([shared.get("a", make), shared.get("a", make), shared.get("b", make)]), [1, 1, 2]);
  await assert.rejects(shared.get("c", () => Promise.reject(new Error("down"))), /down/);
  assert.equal(await shared.get("c", make), 3);
});

test("Gate admits its limit, first come first served, also after failures", async () => {
  const gate = new Gate(1);
  const order: string[] = [];
  const hold = (name: string, fails = false) =>
    gate.hold(async () => {
      order.push(name);
      await tick();
      if (fails) throw new Error(name);
    });
  const results = await Promise.allSettled([hold("a", true), hold("b"), hold("c", true), hold("d")]);
  assert.deepEqual(order, ["a", "b", "c", "d"]);
  assert.deepEqual(results.map((one) => one.status), ["rejected", "fulfilled", "rejected", "fulfilled"]);
});
