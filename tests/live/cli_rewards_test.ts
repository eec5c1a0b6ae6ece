/** Field cases A: what counts as a reward, and what never does. Every case is a task; one run per sandbox. */
import assert from "node:assert/strict";
import { batch, type Case, notesOf, scored } from "../support/batch.ts";
import type { TaskSpec } from "../support/tasks.ts";

const ZERO = "echo 0 > /logs/verifier/reward.txt";
const INVALID = "harbor:invalid_reward";
const MISSING = "harbor:missing_reward";

/** A solution that plants something in the verifier's folder; the tests say 0. */
const planted = (title: string, solve: string, more: Partial<TaskSpec> = {}): Case => ({
  id: "A1",
  title: `planted ${title} does not win`,
  task: { solve, test: ZERO, ...more },
  expect: (seen) => void scored(seen, 0),
});

/** Tests that leave this reward file behind. What only concerns its text is the same on every sandbox: one is enough. */
const left = (id: string, title: string, test: string, expect: Case["expect"]): Case => ({
  id,
  title,
  on: ["A7", "A8"].includes(id) ? undefined : ["host"],
  task: { test },
  expect,
});

const cases: Case[] = [
  planted("reward.json", `echo '{"reward":1}' > /logs/verifier/reward.json`),
  planted("link", `echo '{"reward":1}' > /tmp/r; ln -s /tmp/r /logs/verifier/reward.json`),
  planted(
    "folder behind a link",
    "mkdir /tmp/v; rm -rf /logs/verifier; ln -s /tmp/v /logs/verifier; echo 1 > /tmp/v/reward.json",
  ),
  planted(
    "folder in place of the file",
    "mkdir -p /logs/verifier/reward.json/deep; touch /logs/verifier/reward.json/deep/x",
  ),
  planted("pipe in place of the file", "rm -f /logs/verifier/reward.txt; mkfifo /logs/verifier/reward.txt"),
  planted(
    "read-only file",
    `cd /logs/verifier; echo '{"reward":1}' > reward.json; chmod 444 reward.json; chmod 555 .; chattr +i reward.json 2>/dev/null || true`,
  ),
  planted(
    "file of another user",
    `mkdir -p /logs/verifier/d; echo '{"reward":1}' > /logs/verifier/reward.json; chmod 000 /logs/verifier/d; true`,
    { toml: `[agent]\nuser = "nobody"` },
  ),
  planted(
    "link in place of /logs",
    `rm -rf /logs; mkdir -p /tmp/l/verifier; ln -s /tmp/l /logs; echo 1 > /tmp/l/verifier/reward.txt`,
  ),
  {
    id: "A1",
    title: "planted files are gone before the tests start",
    task: {
      solve: `cd /logs/verifier; touch -- reward.txt reward.json .hidden -rf $'a\\nb'; mkdir -p .d/e`,
      test: `[ -z "$(find /logs/verifier -mindepth 1 ! -name test-stdout.txt)" ] && echo 1 > /logs/verifier/reward.txt`,
    },
    expect: (seen) => void scored(seen, 1),
  },
  {
    id: "A1",
    title: "a planted reward with tests that write none is no reward",
    task: {
      solve: `echo 1 > /logs/verifier/reward.txt; echo '{"reward":1}' > /logs/verifier/reward.json`,
      test: "true",
    },
    expect: (seen) => void scored(seen, 0, MISSING),
  },
  {
    id: "planted tests",
    title: "conftest.py beside the tests is gone",
    task: {
      solve: "mkdir -p /tests; touch /tests/conftest.py /tests/.hidden",
      test: `[ "$(ls -A /tests)" = test.sh ] && echo 1 > /logs/verifier/reward.txt`,
    },
    expect: (seen) => void scored(seen, 1),
  },
  {
    id: "planted tests",
    title: "a link in place of /tests is not followed",
    task: {
      solve: "rm -rf /tests; mkdir /tmp/kept; touch /tmp/kept/file; ln -s /tmp/kept /tests",
      test:
        `[ ! -L /tests ] && [ -e /tmp/kept/file ] && [ ! -e /tmp/kept/test.sh ] && echo 1 > /logs/verifier/reward.txt`,
    },
    expect: (seen) => void scored(seen, 1),
  },
  {
    id: "planted tests",
    title: "a file in place of /tests is replaced",
    task: { solve: "rm -rf /tests; echo x > /tests" },
    expect: (seen) => void scored(seen, 1),
  },
  left(
    "A2",
    "reward.json wins and the difference is noted",
    `cd /logs/verifier; echo '{"reward":0.25}' > reward.json; echo 1 > reward.txt`,
    (seen) => {
      const row = scored(seen, 0.25);
      assert.match(notesOf(row), /reward\.json.*reward\.txt|reward\.txt.*reward\.json/s, seen.told);
    },
  ),
  left(
    "A2",
    "two files that agree need no note",
    `cd /logs/verifier; echo '{"reward":1}' > reward.json; echo 1.0 > reward.txt`,
    (seen) => {
      assert.equal(notesOf(scored(seen, 1)).includes("reward.txt"), false, seen.told);
    },
  ),
  left("A3", "words in reward.json are named", `echo '{"reward":1,"log":"x"}' > /logs/verifier/reward.json`, (seen) => {
    const row = scored(seen, 0, INVALID, /log/);
    assert.match(`${row.failure_reason}${seen.run.stderr}`, /reward-details\.json/, seen.told);
  }),
  left(
    "A3",
    "an unusable reward.json falls back, never silently",
    `cd /logs/verifier; echo '{"reward":1,"log":"x"}' > reward.json; echo 1 > reward.txt`,
    (seen) => {
      assert.match(notesOf(scored(seen, 1)), /reward\.json/, seen.told);
    },
  ),
  left(
    "A4",
    "further numbers are kept beside the reward",
    `echo '{"reward":1,"protocol":1,"correctness":0}' > /logs/verifier/reward.json`,
    (seen) => {
      assert.deepEqual(scored(seen, 1).rewards, { reward: 1, protocol: 1, correctness: 0 }, seen.told);
    },
  ),
  left(
    "A4",
    "several numbers without a reward are named",
    `echo '{"a":1,"b":0}' > /logs/verifier/reward.json`,
    (seen) => {
      scored(seen, 0, INVALID, /a.*b/s);
    },
  ),
  left("A5", "broken JSON is quoted", `printf '{"reward": 1' > /logs/verifier/reward.json`, (seen) => {
    scored(seen, 0, INVALID, /\{"reward": 1|reward\.json/);
  }),
  left(
    "A7",
    "a huge reward.txt is not read",
    "truncate -s 3G /logs/verifier/reward.txt",
    (seen) => void scored(seen, 0, INVALID, /reward\.txt/),
  ),
  left(
    "A7",
    "a pipe is no reward",
    "mkfifo /logs/verifier/reward.txt",
    (seen) => void scored(seen, 0, INVALID, /reward\.txt/),
  ),
  left(
    "A7",
    "a link to a device is no reward",
    "ln -s /dev/zero /logs/verifier/reward.txt",
    (seen) => void scored(seen, 0, INVALID, /reward\.txt/),
  ),
  left(
    "A7",
    "a link out of the folder is no reward",
    "echo 1 > /tmp/one; ln -s /tmp/one /logs/verifier/reward.txt",
    (seen) => void scored(seen, 0, INVALID, /reward\.txt/),
  ),
  left(
    "A7",
    "a folder is no reward",
    "mkdir /logs/verifier/reward.json",
    (seen) => void scored(seen, 0, INVALID, /reward\.json/),
  ),
  left(
    "A7",
    "a link in place of the folder is no reward",
    "mkdir /tmp/v; echo 1 > /tmp/v/reward.txt; rm -rf /logs/verifier; ln -s /tmp/v /logs/verifier",
    (seen) => {
      assert.notEqual(seen.row?.reward, 1, seen.told);
    },
  ),
  left(
    "A8",
    "no file is a missing reward, not a plain 0",
    "echo from-the-tests",
    (seen) => void scored(seen, 0, MISSING, /from-the-tests/),
  ),
  {
    id: "A8",
    title: "tests past their limit are a verifier timeout",
    task: { test: "echo from-the-tests; sleep 300", toml: "[verifier]\ntimeout_sec = 1" },
    expect: (seen) => {
      const row = scored(seen, 0, "harbor:verifier_timeout", /from-the-tests/);
      assert.ok(row.verifier_seconds < 30, seen.told);
      assert.match(seen.log("test-stdout.txt") ?? "", /from-the-tests/);
    },
  },
  {
    id: "A8",
    title: "a reward written before the limit counts",
    task: { test: "echo 1 > /logs/verifier/reward.txt; sleep 300", toml: "[verifier]\ntimeout_sec = 1" },
    expect: (seen) => void scored(seen, 1),
  },
  left("A8", "the exit code of the tests does not decide", "echo 1 > /logs/verifier/reward.txt; exit 7", (seen) => {
    assert.equal(scored(seen, 1).verifier_return_code, 7, seen.told);
  }),
  ...["1_0", "0x1", "nan", "inf", "１", "\\xc2\\xa01", "\\xef\\xbb\\xbf1", "1 1", "true", '"1"', "", "   "].map((
    text,
  ) =>
    left(
      "A10",
      `${JSON.stringify(text)} is no number`,
      `printf '${text}' > /logs/verifier/reward.txt`,
      (seen) => void scored(seen, 0, INVALID),
    )
  ),
  ...([[".5", 0.5], ["5.", 5], [" 1\\t\\r\\n", 1], ["-1e-1", -0.1], ["+1", 1]] as const).map(([text, value]) =>
    left(
      "A10",
      `${JSON.stringify(text)} is ${value}`,
      `printf -- '${text}' > /logs/verifier/reward.txt`,
      (seen) => void scored(seen, value),
    )
  ),
  ...["1", "true", "[1]", "{}", '{"reward":true}', '{"reward":"1"}', '{"reward":null}', '{"reward":NaN}'].map((text) =>
    left(
      "A10",
      `${text} is no reward.json`,
      `echo '${text}' > /logs/verifier/reward.json`,
      (seen) => void scored(seen, 0, INVALID),
    )
  ),
  left(
    "A14",
    "tests that could not fetch their tools are flagged",
    [
      "echo 'curl: (6) Could not resolve host: astral.sh'",
      "uvx pytest",
      ZERO,
    ].join("\n"),
    (seen) => {
      const row = scored(seen, 0);
      assert.match(
        `${notesOf(row)}${row.failure_reason ?? ""}`,
        /could not resolve host|command not found|bootstrap|fetch/i,
        seen.told,
      );
    },
  ),
  {
    id: "A16",
    title: "neither tests nor logs of the verifier are there while the solution works",
    task: {
      solve: [
        "find /tests /logs/verifier -mindepth 1 2>/dev/null > /tmp/seen",
        "grep -rl 'only-in-the-''tests' /tmp /var/tmp /logs /root /home /opt /srv 2>/dev/null >> /tmp/seen",
        "true",
      ].join("\n"),
      test: "# only-in-the-tests\n[ ! -s /tmp/seen ] && echo 1 > /logs/verifier/reward.txt || cat /tmp/seen",
    },
    expect: (seen) => void scored(seen, 1),
  },
  left(
    "A17",
    "text before the number is refused",
    "echo 'reward: 1' > /logs/verifier/reward.txt",
    (seen) => void scored(seen, 0, INVALID, /reward: 1|reward\.txt/),
  ),
];

batch(cases, { name: "rewards" });
