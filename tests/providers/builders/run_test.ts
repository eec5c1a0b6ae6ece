import { test } from "node:test";
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import process from "node:process";
import { descendants, runBuild } from "../../../providers/builders/_run.ts";
import { systemClock } from "../../../lib/runtime/clock.ts";
import { systemRunner } from "../../../lib/runtime/runner.ts";

const machine = { runner: systemRunner(), clock: systemClock };
const soon = () => AbortSignal.timeout(30_000);

test("descendants() finds every generation and nothing else", () => {
  const parents = new Map([[2, 1], [3, 2], [4, 3], [5, 1], [9, 4], [6, 5], [7, 7]]);
  assert.deepEqual(descendants(2, parents).sort(), [3, 4, 9]);
  assert.deepEqual(descendants(8, parents), []);
});

test("B21: runBuild() ends the step and lets the client tidy up in its own way", async () => {
  const script = "trap '' TERM; setsid sh -c 'sleep 48154; true'; echo tidied; exit 3";
  const result = await runBuild(machine, {
    argv: ["sh", "-c", script],
    env: process.env,
    deadlineMs: 300,
    signal: soon(),
    onOutput: () => {},
  });
  assert.deepEqual([result.ended, result.exitCode, result.stdout], ["deadline", 3, "tidied\n"]);
  assert.equal(spawnSync("ps", ["-eo", "args"]).stdout.toString().includes("sleep 48154"), false);
});

test("runBuild() ends on an abort, and passes output on as it comes", async () => {
  const abort = new AbortController();
  const seen: string[] = [];
  const result = await runBuild(machine, {
    argv: ["sh", "-c", "echo one; echo two >&2; sleep 48155"],
    env: process.env,
    deadlineMs: Infinity,
    signal: abort.signal,
    onOutput: (chunk) => {
      seen.push(new TextDecoder().decode(chunk));
      if (seen.join("").includes("two")) abort.abort();
    },
  });
  assert.equal(result.ended, "aborted");
  assert.match(seen.join(""), /one/);
});
