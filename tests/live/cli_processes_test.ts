/** Field cases B: limits, exit codes and process trees, seen from inside a task. One run per sandbox. */
import assert from "node:assert/strict";
import { batch, type Case, notScored, scored } from "../support/batch.ts";
import { IMAGE_WITHOUT_BASH } from "../support/tasks.ts";

const PASS = "echo 1 > /logs/verifier/reward.txt";
const FAIL = "echo 0 > /logs/verifier/reward.txt";
const AGENT_LIMIT = "[agent]\ntimeout_sec = 1";
const TEST_LIMIT = "[verifier]\ntimeout_sec = 1";

/** Tests that pass when no process of the sandbox carries `mark` in its argv. */
const noneLeft = (mark: string): string =>
  `left=$(cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c '[${mark[0]}]${mark.slice(1)}')\n` +
  `[ "$left" = 0 ] && ${PASS} || { ${FAIL}; ps ax 2>/dev/null; }`;

const cases: Case[] = [
  {
    id: "B1",
    title: "a solution past its limit is dead when the tests run",
    task: { solve: "bash -c 'while :; do :; done' spinner-b1a", test: noneLeft("spinner-b1a"), toml: AGENT_LIMIT },
    expect: (seen) => {
      const row = scored(seen, 1);
      assert.equal(row.agent_timed_out, true, seen.told);
    },
  },
  {
    id: "B1",
    title: "so are its grandchildren in sessions of their own that ignore signals",
    task: {
      solve: `setsid bash -c 'trap "" TERM INT HUP; (while :; do sleep 1; done) & wait' spinner-b1b & sleep 100`,
      test: noneLeft("spinner-b1b"),
      toml: AGENT_LIMIT,
    },
    expect: (seen) => void scored(seen, 1),
  },
  {
    id: "B3",
    title: "what a solution printed before its limit is kept",
    task: { solve: "echo begun-to-solve; sleep 100", test: PASS, toml: AGENT_LIMIT },
    expect: (seen) => assert.match(JSON.stringify(scored(seen, 1).response), /begun-to-solve/, seen.told),
  },
  {
    id: "B3",
    title: "what tests printed before their limit is kept",
    task: { test: "echo begun-to-test; sleep 100", toml: TEST_LIMIT },
    expect: (seen) => {
      scored(seen, 0, "harbor:verifier_timeout", /begun-to-test/);
      assert.match(seen.log("test-stdout.txt") ?? "", /begun-to-test/, seen.told);
    },
  },
  {
    id: "B4",
    title: "a solution that removes the programs is never a scored 0",
    task: { solve: "rm -rf /usr/bin /bin/* 2>/dev/null", test: FAIL },
    expect: (seen) => void notScored(seen),
  },
  {
    id: "B4",
    title: "a solution that takes the shell away is never a scored 0",
    task: { solve: "chmod 000 /bin/bash /bin/sh $(readlink -f /bin/sh)", test: FAIL },
    expect: (seen) =>
      void (seen.row?.reward === 0 && seen.row.mask_sample === false
        ? scored(seen, 0) // root may run what mode 000 forbids to others only where a capability says so
        : notScored(seen)),
  },
  {
    id: "B4",
    title: "a solution that kills PID 1 is told from one that fails",
    task: { solve: "kill -9 1; kill -TERM 1; kill -9 -1; sleep 5", test: PASS },
    expect: (seen) => void (seen.row?.mask_sample === false ? scored(seen, 1) : notScored(seen)),
  },
  {
    id: "B5",
    title: "100 MB of output in one go does not hang the solution or the tests",
    task: {
      solve: "head -c 100000000 /dev/zero | tr '\\0' a; echo end-of-solve",
      test: `head -c 100000000 /dev/zero | tr '\\0' b; ${PASS}`,
    },
    expect: (seen) => assert.match(JSON.stringify(scored(seen, 1).response), /end-of-solve/, seen.told),
  },
  {
    id: "B7",
    title: "the end of long output is kept, cut between characters",
    task: { test: "for i in $(seq 200000); do printf ééééééééé; done; echo; echo 'ERROR: real cause'; exit 1" },
    expect: (seen) => {
      const row = scored(seen, 0, "harbor:missing_reward", /ERROR: real cause/);
      assert.equal(String(row.failure_reason).includes("\ufffd"), false, seen.told);
      assert.ok(String(row.failure_reason).length <= 2000, seen.told);
    },
  },
  {
    id: "B10",
    title: "a solution that kills everything it can see sees only its own",
    task: { solve: "pkill -9 -f gym-harbor; pkill -9 dockerd; pkill -9 deno; true", test: PASS },
    expect: (seen) => void (seen.row === undefined || seen.row.mask_sample ? notScored(seen) : scored(seen, 1)),
  },
  {
    id: "B11",
    title: "a thousand orphans are reaped",
    task: {
      solve: "for i in $(seq 1000); do (true &) ; done; sleep 0.5",
      test:
        `z=0; for s in /proc/[0-9]*/stat; do read -r _ _ state _ < "$s" 2>/dev/null && [ "$state" = Z ] && z=$((z+1)); done\n` +
        `[ $z -lt 10 ] && ${PASS} || echo "$z zombies"`,
    },
    expect: (seen) => void scored(seen, 1),
  },
  {
    id: "B16",
    title: "the limit of the tests is the task's own, to the second",
    task: { test: "sleep infinity", toml: "[verifier]\ntimeout_sec = 3" },
    expect: (seen) => {
      const row = scored(seen, 0, "harbor:verifier_timeout");
      assert.ok(row.verifier_seconds >= 2.5 && row.verifier_seconds < 15, seen.told);
    },
  },
  {
    id: "B18",
    title: "an image without bash is named",
    on: ["docker", "podman"],
    task: { image: IMAGE_WITHOUT_BASH, solve: "true", test: PASS },
    expect: (seen) => void notScored(seen, /bash/),
  },
  {
    id: "B19",
    title: "no terminal, and nothing to read on stdin",
    task: {
      solve: "{ [ -t 0 ] || [ -t 1 ] || [ -t 2 ]; } && touch /tmp/tty; read -r line && touch /tmp/read; true",
      test:
        `{ [ -t 0 ] || [ -t 1 ] || [ -t 2 ]; } && touch /tmp/tty; read -r line && touch /tmp/read; ls /tmp\n[ ! -e /tmp/tty ] && [ ! -e /tmp/read ] && ${PASS}`,
    },
    expect: (seen) => void scored(seen, 1),
  },
  {
    id: "B22",
    title: "memory beyond the task's limit is told",
    task: {
      environment: "memory_mb = 64",
      solve: `/usr/bin/python3 -c 'x = bytearray(400 * 1024 * 1024); print(len(x))'; true`,
      test: FAIL,
    },
    expect: (seen) => {
      const text = JSON.stringify(seen.row ?? seen.failure);
      assert.match(
        text,
        /oom|out of memory|lack of memory|memory[^"]*(not|partly) enforced|limits?[^"]*not enforced/i,
        seen.told,
      );
    },
  },
  {
    id: "background children",
    title: "tests that leave processes behind end all the same",
    task: { test: `sleep 600 & setsid sleep 601 & (sleep 602 &) ; ${PASS}` },
    expect: (seen) => assert.ok(scored(seen, 1).verifier_seconds < 20, seen.told),
  },
  {
    id: "background children",
    title: "a service that the solution started serves the tests",
    task: {
      solve:
        "cd /tmp; echo served > page; nohup /usr/bin/python3 -m http.server 8765 --bind 127.0.0.1 >/dev/null 2>&1 & sleep 1",
      test:
        `for i in $(seq 50); do curl -sf --noproxy '*' http://127.0.0.1:8765/page && break; sleep 0.1; done | grep -q served && ${PASS}`,
    },
    expect: (seen) => void scored(seen, 1),
  },
  {
    id: "background children",
    title: "a solution that leaves a child holding its output returns",
    task: { solve: "sleep 600 & echo started", test: PASS, toml: "[agent]\ntimeout_sec = 60" },
    expect: (seen) => assert.equal(scored(seen, 1).agent_timed_out ?? false, false, seen.told),
  },
  {
    id: "exit codes",
    title: "124, 125, 126, 127 and 137 of a solution are its own",
    task: { solve: "exit 137", test: PASS },
    expect: (seen) => assert.equal(scored(seen, 1).response_metadata.oracle_return_code, "137", seen.told),
  },
  ...[124, 125, 126, 127, 137].map((code): Case => ({
    id: "exit codes",
    title: `${code} of the tests is their own`,
    task: { test: `exit ${code}` },
    expect: (seen) => assert.equal(scored(seen, 0, "harbor:missing_reward").verifier_return_code, code, seen.told),
  })),
  {
    id: "pid table",
    title: "a solution that fills the pid table does not hang the run",
    task: { solve: "for i in $(seq 3000); do sleep 300 & done 2>/dev/null; true", test: PASS },
    expect: (seen) => void (seen.row?.mask_sample === false ? scored(seen, 1) : notScored(seen)),
  },
];

batch(cases, { name: "processes" });
