/** Field cases G and the parts of D that a task sees from inside: variables, users, folders, networks. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chownSync, existsSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { batch, type Case, notScored, scored } from "../support/batch.ts";
import { startCli } from "../support/cli.ts";
import { needing, needsRoot, sandboxes, sandboxTest } from "../support/kit.ts";
import { IMAGE, runFiles, TempFolder, validate } from "../support/tasks.ts";

const PASS = "echo 1 > /logs/verifier/reward.txt";
const CLOSED = "[ -z \"$(curl -s -m 3 -o /dev/null -w '%{http_code}' http://deb.debian.org/ | grep -v 000)\" ]";

const cases: Case[] = [
  {
    id: "D5",
    title: "WORKDIR and ENV of the Dockerfile hold for solution and tests",
    task: {
      image: null,
      solve: `echo "$(pwd) $FLAVOUR" > /tmp/got`,
      test: `[ "$(cat /tmp/got) $(pwd)" = '/srv/app sweet /srv/app' ] && ${PASS}`,
      files: { "environment/Dockerfile": `FROM ${IMAGE}\nENV FLAVOUR=sweet\nWORKDIR /srv/app\n` },
    },
    expect: (seen) => void scored(seen, 1),
  },
  {
    id: "D5",
    title: "workdir of task.toml wins over the Dockerfile's, and is made",
    task: {
      image: null,
      environment: `workdir = "/opt/made"`,
      solve: "pwd > /tmp/got",
      test: `[ "$(cat /tmp/got) $(pwd)" = '/opt/made /opt/made' ] && ${PASS}`,
      files: { "environment/Dockerfile": `FROM ${IMAGE}\nWORKDIR /srv/app\n` },
    },
    expect: (seen) => void scored(seen, 1),
  },
  {
    id: "D5",
    title: "files of environment/ that the Dockerfile copies are there, with their modes",
    task: {
      image: null,
      test: `[ "$(cat /srv/data/a.txt)" = kept ] && [ -x /srv/data/run.sh ] && [ ! -e /srv/data/left.txt ] && ${PASS}`,
      files: {
        "environment/Dockerfile": `FROM ${IMAGE}\nWORKDIR /srv\nCOPY data/ data/\n`,
        "environment/.dockerignore": "**/left.txt\n",
        "environment/data/a.txt": "kept",
        "environment/data/left.txt": "ignored",
        "environment/data/run.sh": { text: "#!/bin/sh\n", mode: "755" },
      },
    },
    expect: (seen) => void scored(seen, 1),
  },
  {
    id: "D6",
    title: "no-network is cut off",
    task: { environment: `network_mode = "no-network"`, test: `${CLOSED} && ${PASS}` },
    expect: (seen) => assert.equal(scored(seen, 1).verifier_network, "no-network", seen.told),
  },
  {
    id: "D7",
    title: "no-network keeps the loopback of its own processes",
    task: {
      environment: `network_mode = "no-network"`,
      solve:
        "cd /tmp; echo served > page; nohup /usr/bin/python3 -m http.server 8766 --bind 127.0.0.1 >/dev/null 2>&1 & sleep 1",
      test:
        `for i in $(seq 50); do curl -sf http://127.0.0.1:8766/page && break; sleep 0.1; done | grep -q served && ${PASS}`,
    },
    expect: (seen) => void scored(seen, 1),
  },
  {
    id: "G2",
    title: "an instruction and a variable beyond 128 KiB",
    task: {
      instruction: `${"long words ".repeat(20_000)}\n`,
      environment: `env = { LONG = "${"x".repeat(120_000)}" }`,
      test: `[ \${#LONG} = 120000 ] && [ $(stat -c %s /logs/agent/trajectory.json) -gt 200000 ] && ${PASS}`,
    },
    expect: (seen) => void scored(seen, 1),
  },
  {
    id: "G4",
    title: "another user works in its own folders, and its tests are readable",
    task: {
      toml: `[agent]\nuser = "nobody"\n[verifier]\nuser = "nobody"`,
      solve: "echo mine > /logs/agent/note && echo mine > /logs/artifacts/note && id -un > /tmp/who",
      test: `[ "$(cat /tmp/who) $(id -un)" = 'nobody nobody' ] && [ -r /tests/secret ] && ${PASS}`,
      files: { "tests/secret": { text: "x", mode: "600" } },
    },
    expect: (seen) => void scored(seen, 1),
  },
  {
    id: "G4",
    title: "another user finds a working folder it can write",
    task: {
      environment: `workdir = "/srv/work"`,
      toml: `[agent]\nuser = "nobody"`,
      solve: "echo mine > made-here",
      test: `[ "$(cat made-here)" = mine ] && [ "$(id -un)" = root ] && ${PASS}`,
    },
    expect: (seen) => void scored(seen, 1),
  },
  {
    id: "G4",
    title: "a user that does not exist is no reward of 0",
    task: { toml: `[agent]\nuser = "no-such-user"` },
    expect: (seen) => void notScored(seen, /no-such-user/),
  },
  {
    id: "G5",
    title: "names that tools trip over are carried as they are",
    task: {
      test:
        `cd /tests && [ -f 'a./b' ] && [ -f ' lead' ] && [ -f ./-rf ] && [ -f 'é日本' ] && [ "$(readlink in)" = data/x ] && [ "$(cat in)" = x ] && ${PASS}`,
      files: {
        "tests/a./b": "x",
        "tests/ lead": "x",
        "tests/-rf": "x",
        "tests/é日本": "x",
        "tests/data/x": "x",
        "tests/in": { symlink: "data/x" },
      },
    },
    expect: (seen) => void scored(seen, 1),
  },
  {
    id: "G5",
    title: "a solution that points /tests at /etc does not move our files there",
    task: { solve: "rm -rf /tests; ln -s /etc /tests", test: `[ ! -e /etc/test.sh ] && [ -e /etc/passwd ] && ${PASS}` },
    expect: (seen) => void scored(seen, 1),
  },
  {
    id: "G8",
    title: "folders that only root may enter are no obstacle",
    task: {
      solve: "mkdir -p /logs/artifacts/deep /logs/agent/deep; chmod 700 /logs/*/deep; chmod 000 /logs/agent/deep",
      test: `mkdir -p /logs/verifier/deep; echo x > /logs/verifier/deep/f; chmod 000 /logs/verifier/deep; ${PASS}`,
    },
    expect: (seen) => void scored(seen, 1),
  },
  {
    id: "links out",
    title: "a link that the tests leave in their logs is not followed on this machine",
    task: { test: `ln -s /etc/shadow /logs/verifier/shadow; ln -s ../../../../../../etc /logs/verifier/up; ${PASS}` },
    expect: (seen) => {
      scored(seen, 1);
      assert.equal(seen.log("shadow"), undefined, "a link out of the folder is left out");
      assert.equal(existsSync(join(seen.row!.verifier_logs_dir, "up", "passwd")), false);
    },
  },
];

batch(cases, { name: "environment" });

for (const sandbox of sandboxes()) {
  sandboxTest(sandbox, "G1: a secret of the environment is in no argv and in no file of the run", async () => {
    using folder = new TempFolder("secret");
    const secret = `gh${crypto.randomUUID().replaceAll("-", "")}`;
    const reference = 'KEY = "${GH_TEST_SECRET}"';
    const task = folder.task("keeps-secret", {
      environment: `env = { ${reference} }`,
      toml: `[verifier]\nenv = { ${reference} }\n[solution]\nenv = { ${reference} }`,
      solve: `[ "$KEY" = ${secret.slice(0, 16)}''${
        secret.slice(16)
      } ] && touch /tmp/known; echo "said: $KEY"; sleep 0.5`,
      test: `[ -e /tmp/known ] && [ -n "$KEY" ] && ${PASS}; sleep 0.5`,
    });
    const output = folder.join("out", "rollouts.jsonl");
    const started = startCli(["validate", task, "--sandbox", sandbox, "--output", output, "-v"], {
      env: { GH_TEST_SECRET: secret },
    });
    let over = false;
    const ended = started.wait().finally(() => over = true);
    const caught: string[] = [];
    while (!over) {
      caught.push(...argvs().filter((argv) => argv.includes(secret)));
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    const run = runFiles(output, await ended);
    assert.equal(run.rows[0]?.reward, 1, run.stderr);
    assert.deepEqual(caught, [], "the secret was on a command line");
    const kept = filesWith(folder.join("out"), secret).filter((path) => !path.includes("test-stdout"));
    assert.deepEqual(kept, [], "the secret stands in files of the run");
    assert.equal(`${run.stdout}${run.stderr}`.includes(secret), false, "the secret was printed");
  });
}

needing(needsRoot(), "G8: a plain user can run on host and remove all that a run left", async () => {
  using folder = new TempFolder("plain");
  const task = folder.task("hello", {
    solve: "mkdir -p /logs/artifacts/deep; chmod 700 /logs/artifacts/deep",
    test: `mkdir -p /logs/verifier/deep; chmod 000 /logs/verifier/deep; ${PASS}`,
  });
  chownSync(folder.path, 65534, 65534);
  const plain = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
  const run = await validate(task, folder.join("out", "rollouts.jsonl"), ["--sandbox", "host"], {
    wrap: plain,
    env: { HOME: undefined, TMPDIR: folder.path, XDG_RUNTIME_DIR: undefined },
  });
  assert.equal(run.code, 0, run.stderr);
  assert.equal(run.rows[0]?.reward, 1);
  const removed = spawnSync(plain[0]!, [...plain.slice(1), "rm", "-rf", folder.join("out")], { encoding: "utf8" });
  assert.equal(removed.status, 0, removed.stderr);
  rmSync(folder.join("out"), { recursive: true, force: true });
});

/** Command lines of all processes that this one may read. */
function argvs(): string[] {
  return readdirSync("/proc").filter((name) => /^\d+$/.test(name)).flatMap((pid) => {
    try {
      return [readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ")];
    } catch {
      return []; // it ended meanwhile
    }
  });
}

/** Files below `folder` that hold `text`. */
function filesWith(folder: string, text: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((path) => readFileSync(path, "utf8").includes(text));
}
