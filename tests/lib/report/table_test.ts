import assert from "node:assert/strict";
import { test } from "node:test";
import { lines, TABLE_HEADER, tableLine } from "../../../lib/report/table.ts";
import { record } from "../../support/records.ts";

const table = {
  records: [
    record("good"),
    record("broken-solution", {
      reward: 0,
      response_metadata: { oracle: "failed" },
      failure_kind: "harbor:missing_reward",
    }),
    record("masked", { reward: 0, mask_sample: true, failure_kind: "provider_unavailable" }),
    record("no-image", {
      status: "failed",
      reward: null,
      mask_sample: null,
      failure: {
        class: "environment_server_failed",
        stage: "seed",
        message: `Could not ${"x".repeat(200)}`,
        attempt: 0,
      },
    }, `Could not ${"x".repeat(200)}`),
    record("other-agent", { reward: 0.5, response_metadata: {} }),
    record("later", { status: "missing", reward: null, mask_sample: null }),
  ],
  skipped: { "broken-toml": "broken-toml/task.toml:\tline 1\nis odd" },
  unvalidated: { bare: "no reference solution" },
};

test("the table of validate has a line per case, in the order of task ids", () => {
  const text = [TABLE_HEADER, ...lines(table).map((line) => tableLine(line, false))];
  assert.deepEqual(text, [
    "task_id\tstatus\treward",
    "bare\tunvalidated (no solution/)\t-",
    "broken-solution\toracle failed (harbor:missing_reward)\t0",
    "broken-toml\tskipped: broken-toml/task.toml: line 1 is odd\t-",
    "good\toracle solved\t1",
    "later\tnot run\t-",
    "masked\tmasked (provider_unavailable)\t-",
    `no-image\tfailed: Could not ${"x".repeat(109)}…\t-`,
    "other-agent\tscored\t0.5",
  ]);
});

test("repeats name their number", () => {
  const records = [0, 1].map((rollout_index) => record("a", { rollout_index }));
  assert.deepEqual(lines({ records, skipped: {}, unvalidated: {} }).map((line) => tableLine(line, true)), [
    "a#0\toracle solved\t1",
    "a#1\toracle solved\t1",
  ]);
});

test("C6: a task's words steer no terminal from its cell", () => {
  const [line] = lines({ records: [], skipped: { a: "\u001b]52;c;x\u0007\u001b[2J\r\u009b" }, unvalidated: {} });
  assert.equal(tableLine(line!, false), "a\tskipped: \\x1b]52;c;x\\x07\\x1b[2J \\x9b\t-");
});

test("--json gives the same lines as values", () => {
  const [masked] = lines({ ...table, skipped: {}, unvalidated: {} }).filter((line) => line.status === "masked");
  assert.deepEqual(masked, {
    task_id: "masked",
    rollout_index: 0,
    status: "masked",
    oracle: "solved",
    reward: null,
    failure_kind: "provider_unavailable",
    message: null,
    verifier_logs: "verifier/session-masked",
  });
});
