/** Field cases C: bytes, line ends and escape sequences on their way through shells, rows and screens. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { batch, type Case, scored } from "../support/batch.ts";
import process from "node:process";
import { binary, looksLikeStackTrace, runCli } from "../support/cli.ts";
import { needing, sandboxTest } from "../support/kit.ts";
import { IMAGE, TempFolder } from "../support/tasks.ts";

const PASS = "echo 1 > /logs/verifier/reward.txt";
const ESC = "\u001b";
/** Clear screen, set title, write the clipboard, a bell, a carriage return, a C1 introducer. */
const SPOOF = String.raw`printf '\033[2J\033]0;owned\007\033]52;c;b3duZWQ=\007\rspoofed\302\233 2J\n'`;
const AWKWARD = `a'b"c\\d$HOME\`id\`!e\tf é 日本 $(id) *`;

const cases: Case[] = [
  {
    id: "C1",
    title: "bytes that are no text come through",
    task: {
      solve: String.raw`printf '\377\376\200'; head -c 1000 /bin/ls`,
      test: String.raw`printf '\377\376\200 after'; ${PASS}`,
    },
    expect: (seen) => {
      const row = scored(seen, 1);
      const raw = readFileSync(`${row.verifier_logs_dir}/test-stdout.txt`);
      assert.deepEqual([...raw.subarray(0, 3)], [0xff, 0xfe, 0x80], seen.told);
    },
  },
  {
    id: "C5",
    title: "tests with CRLF line ends are named as such",
    task: { files: { "tests/test.sh": "#!/bin/bash\r\necho 1 > /logs/verifier/reward.txt\r\n" } },
    expect: (seen) => {
      // bash reads the script, so a file named `reward.txt\r` appears and none that counts
      const row = scored(seen, 0, "harbor:missing_reward");
      assert.match(`${row.failure_reason}${seen.run.stderr}`, /CRLF|carriage return/i, seen.told);
    },
  },
  {
    id: "C5",
    title: "CRLF in task.toml and in the instruction is no fault",
    task: {
      instruction: "Do it.\r\nPlease.\r\n",
      files: { "task.toml": `schema_version = "1.4"\r\n[environment]\r\ndocker_image = "${IMAGE}"\r\n` },
    },
    expect: (seen) => {
      const row = scored(seen, 1);
      assert.match(JSON.stringify(row.responses_create_params), /Do it\.\\r\\nPlease\./, seen.told);
    },
  },
  {
    id: "C6",
    title: "escape sequences stay in the logs",
    task: { solve: SPOOF, test: `${SPOOF}; exit 1` },
    expect: (seen) => {
      scored(seen, 0, "harbor:missing_reward");
      assert.ok((seen.log("test-stdout.txt") ?? "").includes(`${ESC}]52;`), seen.told);
      assert.equal(`${seen.run.stdout}${seen.run.stderr}`.includes(ESC), false, "no escape reaches a pipe");
      assert.match(seen.run.stderr, /spoofed/, "the words are shown");
    },
  },
  {
    id: "C9",
    title: "quotes, dollars, backticks and newlines in values arrive as they were",
    task: {
      environment: `env = { AWKWARD = ${JSON.stringify(AWKWARD)}, MULTI = "one\\ntwo\\n", EMPTY = "" }`,
      toml: `[solution]\nenv = { OWN = ${JSON.stringify(AWKWARD)} }`,
      solve: `printf '%s|%s|%s|%s' "$AWKWARD" "$OWN" "$MULTI" "\${EMPTY-unset}" > /tmp/got`,
      test: `cmp /tmp/got /tests/want && ${PASS}`,
      files: { "tests/want": `${AWKWARD}|${AWKWARD}|one\ntwo\n|` },
    },
    expect: (seen) => void scored(seen, 1),
  },
  {
    id: "C9",
    title: "the same as another user",
    task: {
      environment: `env = { AWKWARD = ${JSON.stringify(AWKWARD)}, MULTI = "one\\ntwo\\n" }`,
      toml: `[agent]\nuser = "nobody"\n[verifier]\nuser = "nobody"`,
      solve: `printf '%s|%s|%s' "$AWKWARD" "$MULTI" "$(id -un)" > /tmp/got`,
      test: `cmp /tmp/got /tests/want && ${PASS}`,
      files: { "tests/want": `${AWKWARD}|one\ntwo\n|nobody` },
    },
    expect: (seen) => void scored(seen, 1),
  },
  {
    id: "C4",
    title: "an instruction beyond ASCII arrives in the transcript",
    task: {
      instruction: "Schreib é, 日本 und 🎉.\n",
      test: `grep -q '日本 und 🎉' /logs/agent/trajectory.json && ${PASS}`,
    },
    expect: (seen) => void scored(seen, 1),
  },
];

batch(cases, { name: "text", cli: { env: { LC_ALL: "C", LANG: "C" } } });

sandboxTest("host", "C6: a terminal sees our own cursor movements and nothing of the task's", () => {
  using folder = new TempFolder("tty");
  const task = folder.task("spoof", { solve: SPOOF, test: `${SPOOF}; exit 1` });
  const words = [binary(), "validate", task, "--sandbox", "host", "--output", folder.join("out", "r.jsonl")];
  const shown = spawnSync("script", ["-qec", words.map((word) => `'${word}'`).join(" "), "/dev/null"], {
    encoding: "latin1",
    env: { ...process.env, TERM: "xterm-256color", CI: "", NO_COLOR: undefined },
  });
  assert.equal(shown.error, undefined, "script (util-linux) runs");
  assert.match(shown.stdout, /spoofed/, shown.stdout);
  for (
    const [name, sequence] of [["title or clipboard", `${ESC}]`], ["clear", `${ESC}[2J`], ["bell", "\u0007"], [
      "C1",
      "\u009b2J",
    ]]
  ) {
    assert.equal(
      shown.stdout.includes(sequence!),
      false,
      `${name} reached the terminal: ${JSON.stringify(shown.stdout)}`,
    );
  }
});

needing(null, "C4: a bare locale is no fault", async () => {
  using folder = new TempFolder("locale");
  const task = folder.task("é-task", { instruction: "é\n" });
  const result = await runCli(["check", task], { env: { LC_ALL: "POSIX", LANG: undefined } });
  assert.equal(looksLikeStackTrace(result.stderr), false, result.stderr);
  assert.match(`${result.stdout}${result.stderr}`, /é-task/);
});
