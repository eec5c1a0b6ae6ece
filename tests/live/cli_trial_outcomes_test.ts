/**
 * What Harbor 0.25.0 gave for small tasks with its oracle on docker (trial-outcomes.jsonl), given to our program: the
 * same rewards, save the exceptions below, each with its reason. Single-step tasks with a shared verifier.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { batch, type Case, scored, type Seen } from "../support/batch.ts";
import { dataPath, needing } from "../support/kit.ts";
import { type Files, IMAGE, type TaskSpec } from "../support/tasks.ts";

interface Outcome {
  case: string;
  files: Record<string, string>;
  result: { rewards: Record<string, number> | null; verifier_environment_mode: string | null; steps: unknown };
}

/** Where we differ on purpose. */
const EXCEPTIONS: Record<string, { why: string; expect: (seen: Seen) => void }> = {
  "broken-json-with-txt": {
    why: "an unusable reward.json falls back to reward.txt, with a note",
    expect: (seen) => assert.match(JSON.stringify(scored(seen, 1).sandbox), /reward\.json/, seen.told),
  },
  "verifier-timeout": {
    why: "a reward that was written before the limit counts",
    expect: (seen) => void scored(seen, 1),
  },
  "reward-json": {
    why: "several keys and none named reward give no scalar: scored 0, the keys named",
    expect: (seen) => void scored(seen, 0, "harbor:invalid_reward", /a.*b/s),
  },
  "no-solution": {
    why: "a task without a solution is left out of validate, not run to an error",
    expect: (seen) => {
      assert.equal(seen.row ?? seen.failure, undefined, seen.told);
      assert.match(seen.run.stdout, /\tunvalidated \(no solution\/\)\t-/, seen.told);
    },
  },
  "healthcheck-fails": {
    why: "the episode fails at seed, or health checks are not in this version; either way no reward",
    expect: (seen) => assert.equal(seen.row, undefined, seen.told),
  },
};

const path = dataPath("vectors", "harbor-0.25.0", "trial-outcomes.jsonl");
if (path === undefined) {
  needing("GYM_HARBOR_DATA names no folder with vectors/", "trial outcomes are those of Harbor 0.25.0", () => {});
} else {
  const outcomes = readFileSync(path, "utf8").trim().split("\n").map((line) => JSON.parse(line) as Outcome)
    .filter((one) => one.result.steps === null && one.result.verifier_environment_mode === "shared");
  batch(outcomes.map(caseOf), { name: "outcomes" });
}

function caseOf(outcome: Outcome): Case {
  const files: Files = Object.fromEntries(
    Object.entries(outcome.files).map(([name, text]) => [name, text.replaceAll("IMAGE", IMAGE)]),
  );
  const exception = EXCEPTIONS[outcome.case];
  return {
    id: outcome.case,
    title: exception?.why ?? "as upstream",
    task: { solve: null, files } satisfies TaskSpec,
    expect: exception?.expect ?? ((seen) => {
      const { rewards } = outcome.result;
      if (rewards === null) {
        const row = scored(seen, 0, seen.row?.failure_kind);
        assert.match(String(row.failure_kind), /^harbor:/, seen.told);
        return;
      }
      const keys = Object.keys(rewards);
      const row = scored(seen, rewards.reward ?? rewards[keys[0]!]!);
      assert.deepEqual(row.rewards, rewards, seen.told);
    }),
  };
}
