import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import process from "node:process";
import { atifProblems } from "../../../lib/verifier/atif.ts";

const user = { step_id: 1, source: "user", message: "x" };
const agent = { step_id: 1, source: "agent", message: "" };
const document = (changes: object = {}) => ({
  schema_version: "ATIF-v1.7",
  agent: { name: "a", version: "1" },
  steps: [user],
  ...changes,
});

const cases: [string, object, RegExp | null][] = [
  ["a minimal document", {}, null],
  ["an unknown root key", { foo: 1 }, /foo/],
  ["a gap in step ids", { steps: [user, { ...user, step_id: 3 }] }, /steps\.1\.step_id: 3, must be 2/],
  ["metrics on a user's step", { steps: [{ ...user, metrics: {} }] }, /steps\.0\.metrics: only on steps of the agent/],
  [
    "a result of a call that the step did not make",
    { steps: [{ ...agent, observation: { results: [{ source_call_id: "c" }] } }] },
    /names no call of this step/,
  ],
  ["metrics where no model was called", { steps: [{ ...agent, llm_call_count: 0, metrics: {} }] }, /must be absent/],
  ["two subagents of one id", {
    subagent_trajectories: [document({ trajectory_id: "t" }), document({ trajectory_id: "t" })],
  }, /used twice/],
];
for (const [what, changes, problem] of cases) {
  test(`atifProblems() ${problem === null ? "accepts" : "refuses"} ${what}`, () => {
    const problems = atifProblems(document(changes)).join("; ");
    if (problem === null) assert.equal(problems, "");
    else assert.match(problems, problem);
  });
}

const path = join(process.env.GYM_HARBOR_DATA ?? "/nonexistent", "vectors/harbor-0.25.0/atif.jsonl");
test("H10: atifProblems() gives the verdicts of Harbor 0.25.0", {
  skip: existsSync(path) ? false : "GYM_HARBOR_DATA names no folder with vectors",
}, () => {
  for (const line of readFileSync(path, "utf8").trimEnd().split("\n")) {
    const row = JSON.parse(line) as { case: string; doc: unknown; verdict: string };
    const problems = atifProblems(row.doc);
    assert.equal(problems.length === 0 ? "valid" : "invalid", row.verdict, `${row.case}: ${problems.join("; ")}`);
  }
});
