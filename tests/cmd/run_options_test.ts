import assert from "node:assert/strict";
import { availableParallelism } from "node:os";
import { test } from "node:test";
import { parse as parseRun } from "../../cmd/run.ts";
import { isOffline } from "../../cmd/_run_options.ts";
import { parse } from "../../cmd/validate.ts";

test("validate: defaults", () => {
  assert.deepEqual(parse(["tasks"]), {
    target: "tasks",
    overrides: [],
    sandbox: "auto",
    onlyTasks: [],
    excludeTasks: [],
    skipUnloadable: false,
    concurrency: Math.min(4, availableParallelism()),
    resume: false,
    keepFailed: false,
    allowUnsupportedPairing: false,
    offline: false,
    json: false,
    quiet: false,
    verbose: false,
  });
});

const lines: [string, Record<string, unknown>][] = [
  ["tasks --only-tasks a,b --only-tasks c*", { onlyTasks: ["a,b", "c*"] }],
  ["tasks --exclude-tasks x", { excludeTasks: ["x"] }],
  ["tasks --output out/r.jsonl --resume --keep-failed", { output: "out/r.jsonl", resume: true, keepFailed: true }],
  ["tasks --concurrency 8 --num-repeats 3", { concurrency: 8, numRepeats: 3 }],
  ["tasks --sandbox host ++sandbox.host.network=host a.b=1", {
    sandbox: "host",
    overrides: ["++sandbox.host.network=host", "a.b=1"],
  }],
  ["tasks --offline --image-store /s --unpack-dir /u", { offline: true, imageStore: "/s", unpackDir: "/u" }],
  ["tasks -q -v --json --skip-unloadable --allow-unsupported-pairing", {
    quiet: true,
    verbose: true,
    json: true,
    skipUnloadable: true,
    allowUnsupportedPairing: true,
  }],
];
for (const [line, wanted] of lines) {
  test(`validate ${line}`, () => {
    const options = parse(line.split(" ")) as Record<string, unknown>;
    assert.deepEqual(Object.fromEntries(Object.keys(wanted).map((key) => [key, options[key]])), wanted);
  });
}

const refused: [string, RegExp][] = [
  ["tasks --concurrency 0", /--concurrency: must be a whole number from 1/],
  ["tasks --num-repeats x", /--num-repeats: must be a whole number from 1/],
  ["tasks --sandbx host", /unknown option '--sandbx'/],
];
for (const [line, message] of refused) {
  test(`validate ${line} is refused`, () => assert.throws(() => parse(line.split(" ")), { code: "usage", message }));
}

test("run needs an agent", () => {
  assert.equal(parseRun(["tasks", "--agent", "nop"]).agent, "nop");
  assert.throws(() => parseRun(["tasks"]), { code: "usage", message: /--agent: is required/ });
});

for (const [value, offline] of [[undefined, false], ["", false], ["0", false], ["1", true], ["yes", true]] as const) {
  test(`GYM_HARBOR_OFFLINE=${value} is ${offline ? "" : "not "}--offline`, () => {
    assert.equal(isOffline({ offline: false }, { GYM_HARBOR_OFFLINE: value }), offline);
    assert.equal(isOffline({ offline: true }, { GYM_HARBOR_OFFLINE: value }), true);
  });
}
