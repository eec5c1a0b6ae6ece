import assert from "node:assert/strict";
import { test } from "node:test";
import { closing, type ClosingFacts, duration } from "../../../lib/report/closing.ts";
import { record } from "../../support/records.ts";

const facts = (changes: Partial<ClosingFacts>): ClosingFacts => ({
  records: [],
  skipped: {},
  unvalidated: {},
  folder: "results/harbor/validation/my-dataset",
  rollouts: "results/harbor/validation/my-dataset/rollouts.jsonl",
  failures: "results/harbor/validation/my-dataset/rollouts_failures.jsonl",
  interrupted: false,
  seconds: 12.4,
  outputOf: () => "",
  ...changes,
});

test("closing() of a good run is short", () => {
  assert.deepEqual(closing(facts({ records: [record("a"), record("b", {}, null, 3)] })), [
    "",
    "2 scored 1 or more in 12 s",
    "mean reward: 1 over 2",
    "",
    "slowest: b 3 s, a 1.5 s",
    "files: results/harbor/validation/my-dataset",
  ]);
});

test("closing() says what failed, the last words of its tests, and what to do about each kind once", () => {
  const sandbox = { provider: "docker", network: "public", limits: "partly", notes: ["limits are not enforced here"] };
  const records = [
    record("good"),
    record("hangs", { reward: 0, failure_kind: "harbor:verifier_timeout", sandbox }, "test.sh ran past 5 s\nmore"),
    record("masked", { reward: 0, mask_sample: true, failure_kind: "verifier_error" }, "the image has no bash"),
    record(
      "no-image",
      {
        status: "failed",
        reward: null,
        mask_sample: null,
        failure_kind: "provider_unavailable",
        failure: { class: "environment_server_failed", stage: "seed", message: "pull failed", attempt: 0 },
        paths: undefined,
      },
      "pull failed",
      0,
    ),
  ];
  const output = "one\ntwo\nthree\n10%\r50%\r100%\nfour\n\u001b[31mfive\u001b[0m\n\n";
  const outputOf = (one: { entry: { task_id: string } }) => (one.entry.task_id === "hangs" ? output : "");
  assert.deepEqual(closing(facts({ records, outputOf, skipped: { broken: "task.toml is missing\nx" } })), [
    "",
    "1 scored 1 or more, 1 scored below 1, 1 masked, 1 failed, 1 left out in 12 s",
    "mean reward: 0.5 over the 2 scored (0.25 if the 2 without a score counted as 0)",
    "",
    "hangs: reward 0 (harbor:verifier_timeout: the verifier ran past its limit)",
    "  test.sh ran past 5 s",
    "  note: limits are not enforced here",
    "  | two",
    "  | three",
    "  | 100%",
    "  | four",
    "  | \\x1b[31mfive\\x1b[0m",
    "  results/harbor/validation/my-dataset/verifier/session-hangs/test-stdout.txt",
    "",
    "masked: masked (verifier_error: test.sh could not be started)",
    "  the image has no bash",
    "  results/harbor/validation/my-dataset/verifier/session-masked/test-stdout.txt",
    "",
    "no-image: failed at seed (provider_unavailable: the sandbox could not do what was asked)",
    "  pull failed",
    "",
    "what to do:",
    "  harbor:verifier_timeout: raise [verifier].timeout_sec, or see in test-stdout.txt where it hangs",
    "  provider_unavailable: run gym-harbor doctor; then run again with --resume (a task that ends its own sandbox will do so again)",
    "  verifier_error: the image lacks what runs the script; the message names it",
    "",
    "left out:",
    "  broken: task.toml is missing",
    "",
    "slowest: good 1.5 s, hangs 1.5 s, masked 1.5 s",
    "files: results/harbor/validation/my-dataset",
  ]);
});

test("A11: closing() of a run in which nothing was scored says so", () => {
  const failed = { status: "failed", reward: null, mask_sample: null, failure_kind: "provider_unavailable" } as const;
  const text = closing(facts({ records: [record("a", failed), record("b", failed)] })).join("\n");
  assert.match(text, /mean reward: no score/);
  assert.match(text, /None of the 2 dispatched rollouts produced a result \{"provider_unavailable":2\}/);
});

test("closing() tells a note that stands on every episode once, and repeats by number", () => {
  const sandbox = { provider: "host", network: "public", limits: "none", notes: ["no image is used"] };
  const own = { ...sandbox, notes: [...sandbox.notes, "solve.sh exited with 3"] };
  const records = [
    record("a", { sandbox }),
    record("a", { sandbox: own, reward: 0, rollout_index: 1, paths: undefined }),
  ];
  assert.deepEqual(closing(facts({ records })).slice(1, 7), [
    "1 scored 1 or more, 1 scored below 1 in 12 s",
    "mean reward: 0.5 over 2",
    "note: no image is used",
    "",
    "a#1: reward 0",
    "  note: solve.sh exited with 3",
  ]);
});

test("closing() shows ten tasks in full and counts the rest", () => {
  const records = Array.from({ length: 25 }, (_, index) => record(`t${index}`, { reward: 0 }));
  const text = closing(facts({ records }));
  assert.equal(text.filter((line) => /^t\d+: reward 0$/.test(line)).length, 10);
  assert.match(text.join("\n"), /and 15 more: see .*rollouts_failures\.jsonl and .*rollouts\.jsonl/);
});

test("closing() of an interrupted run names the next step", () => {
  const missing = { status: "missing", reward: null, mask_sample: null } as const;
  const text = closing(facts({ records: [record("a"), record("b", missing)], interrupted: true }));
  assert.match(text.join("\n"), /1 not run in 12 s[^]*--resume goes on from here$/);
});

for (
  const [seconds, text] of [[0.04, "0 s"], [1.234, "1.2 s"], [12.4, "12 s"], [185, "3 min 5 s"], [
    7440,
    "2 h 4 min",
  ]] as const
) {
  test(`duration() of ${seconds} s`, () => assert.equal(duration(seconds), text));
}
