import assert from "node:assert/strict";
import { test } from "node:test";
import { isCounted, pauseMs, Unhealthy, untilHealthy } from "../../../lib/compose/health.ts";
import { healthcheckOf } from "../../../lib/compose/healthcheck.ts";
import type { Healthcheck } from "../../../lib/compose/plan.ts";
import { HarborError } from "../../../lib/errors.ts";
import type { Command, ExecResult } from "../../../lib/sandbox/provider.ts";
import { leapingClock } from "../../support/leaping_clock.ts";

const CHECK: Healthcheck = {
  probe: { argv: ["check"] },
  intervalMs: 10_000,
  timeoutMs: 3000,
  retries: 3,
  startPeriodMs: 0,
  startIntervalMs: 5000,
};

/** A service whose probes end in turn as `ends` says; the last one for ever. */
function probed(ends: (number | "deadline" | Error)[]) {
  const asked: Command[] = [];
  const exec = (command: Command): Promise<ExecResult> => {
    asked.push(command);
    const end = ends.length > 1 ? ends.shift()! : ends[0]!;
    if (end instanceof Error) return Promise.reject(end);
    return Promise.resolve({
      ...{
        ended: end === "deadline" ? "deadline" : "exit",
        exitCode: end === "deadline" ? 0 : end,
        stdout: "",
        stderr: "refused\n",
      },
      ...{ droppedBytes: 0, durationMs: 1, collected: {}, brought: [], oomKilled: null },
    } as ExecResult);
  };
  return { asked, exec };
}

const signal = new AbortController().signal;

test("untilHealthy() ends at the first success and asks nobody afterwards", async () => {
  const clock = leapingClock();
  const service = probed([1, 1, 0]);
  await untilHealthy(CHECK, service, clock, signal);
  assert.equal(service.asked.length, 3);
  assert.deepEqual(clock.slept, [500, 1000], "early looks come at growing distances");
  assert.deepEqual(service.asked[0], {
    run: { argv: ["check"] },
    purpose: "server",
    deadlineMs: 3000,
    keepBytes: 8192,
  });
});

test("untilHealthy() gives a service no less time than Docker does before it is given up", async () => {
  const clock = leapingClock();
  await assert.rejects(untilHealthy(CHECK, probed([7]), clock, signal), (error) => {
    assert.ok(error instanceof Unhealthy);
    assert.equal(error.message, "failed its healthcheck 3 times: exit 7: refused");
    return true;
  });
  assert.ok(clock.ticks() >= 30_000, `Docker's third probe is at 30 s, given up at ${clock.ticks()} ms`);
  assert.ok(clock.ticks() <= 40_000, `given up at ${clock.ticks()} ms`);
});

test("untilHealthy() does not count failures of the start period", async () => {
  const clock = leapingClock();
  const slow = { ...CHECK, startPeriodMs: 60_000, startIntervalMs: 2000 };
  await assert.rejects(untilHealthy(slow, probed([1]), clock, signal), Unhealthy);
  assert.ok(clock.ticks() >= 80_000, `given up at ${clock.ticks()} ms`);
  assert.equal(Math.max(...clock.slept.slice(0, 10)), 2000, "start_interval bounds the pauses of the start period");
});

test("untilHealthy() counts failures in a row only where they count, and takes an engine's hiccup for one", async () => {
  const clock = leapingClock();
  const hiccup = new HarborError("sandbox.failed", "engine is busy");
  await assert.rejects(
    untilHealthy({ ...CHECK, intervalMs: 100, retries: 2 }, probed([hiccup]), clock, signal),
    /2 times: engine is busy/,
  );
  await assert.rejects(
    untilHealthy({ ...CHECK, intervalMs: 100, retries: 1 }, probed(["deadline"]), clock, signal),
    /it ran past 3 s/,
  );
  await assert.rejects(untilHealthy(CHECK, probed([new TypeError("a bug")]), clock, signal), TypeError);
});

test("untilHealthy() runs a text by /bin/sh and stops at an abort", async () => {
  const service = probed([0]);
  await untilHealthy({ ...CHECK, probe: { script: "curl -f x" } }, service, leapingClock(), signal);
  assert.deepEqual(service.asked[0]!.run, { argv: ["/bin/sh", "-c", "curl -f x"] });
  const stop = new AbortController();
  stop.abort(new Error("stopped"));
  await assert.rejects(untilHealthy(CHECK, probed([1]), leapingClock(), stop.signal), /stopped/);
});

test("isCounted() and pauseMs() follow the times of a check", () => {
  const check = { ...CHECK, startPeriodMs: 20_000 };
  const rows: [elapsed: number, looks: number, counted: boolean, pause: number][] = [
    [0, 1, false, 500],
    [3000, 4, false, 4000],
    [9000, 9, false, 5000],
    [20_000, 9, true, 10_000],
  ];
  for (const [elapsed, looks, counted, pause] of rows) {
    assert.deepEqual([isCounted(check, elapsed), pauseMs(check, elapsed, looks)], [counted, pause], `${elapsed} ms`);
  }
});

test("healthcheckOf() puts the file's parts over the image's own, defaults below", () => {
  const image = { Healthcheck: { Test: ["CMD-SHELL", "ask"], Interval: 5e9, Retries: 4, StartPeriod: 0 } };
  const defaults = { intervalMs: 30_000, timeoutMs: 30_000, retries: 3, startPeriodMs: 0, startIntervalMs: 5000 };
  const rows: [
    part: Parameters<typeof healthcheckOf>[0],
    config: Parameters<typeof healthcheckOf>[1],
    wanted: unknown,
  ][] = [
    [undefined, undefined, null],
    [undefined, {}, null],
    [undefined, { Healthcheck: { Test: ["NONE"] } }, null],
    ["none", image, null],
    [{ retries: 2 }, {}, null],
    [undefined, image, { ...defaults, probe: { script: "ask" }, intervalMs: 5000, retries: 4 }],
    [{ retries: 2, timeoutMs: 1 }, image, {
      ...defaults,
      probe: { script: "ask" },
      intervalMs: 5000,
      retries: 2,
      timeoutMs: 1,
    }],
    [{ probe: { argv: ["own"] } }, image, { ...defaults, probe: { argv: ["own"] }, intervalMs: 5000, retries: 4 }],
    [{ probe: { argv: ["own"] } }, undefined, { ...defaults, probe: { argv: ["own"] } }],
  ];
  for (const [part, config, wanted] of rows) assert.deepEqual(healthcheckOf(part, config), wanted);
});
