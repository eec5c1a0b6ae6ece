/** Compose tasks on real engines: services that find each other, wait for each other, fail, and leave nothing. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { batch, type Case, type Seen } from "../support/batch.ts";
import { REPOSITORY, runCli, startCli, type StartedCli } from "../support/cli.ts";
import { type SandboxName, sandboxTest } from "../support/kit.ts";
import { Trace } from "../support/leftovers.ts";
import { imageArgs } from "../support/namespace_store.ts";
import { IMAGE, readRows, runFiles, taskFiles, type TaskSpec, TempFolder, writeFiles } from "../support/tasks.ts";

const GROUPS = ["docker", "podman", "namespace"] as const satisfies SandboxName[];
type GroupSandbox = (typeof GROUPS)[number];

/** Shell words that print what an address says, for images without curl. */
const get = (url: string) =>
  `python3 -c "import urllib.request as u; print(u.urlopen('${url}', timeout=5).read().decode().strip())"`;
/** YAML of a health check that opens an address. */
const opens = (url: string, more = "") => {
  const test = JSON.stringify(["CMD", "python3", "-c", `import urllib.request as u; u.urlopen('${url}', timeout=2)`]);
  return `healthcheck: {test: ${test}, interval: 1s, retries: 30${more}}`;
};
const LISTENS = opens("http://127.0.0.1:8000/");
const SERVE = "command: python3 -u -m http.server 8000 --directory /tmp";
/** YAML of a command that is a line of shell. */
const shell = (line: string) => `command: ${JSON.stringify(["sh", "-c", line])}`;

/** A task whose test.sh gives 1 when every line of `checks` holds. */
function task(compose: string, checks: string[], more: Partial<TaskSpec> = {}): TaskSpec {
  const { files, ...rest } = more;
  return {
    solve: "true",
    test: [
      'fail() { echo "no: $1"; echo 0 > /logs/verifier/reward.txt; exit; }',
      ...checks.map((line) => `( ${line} ) || fail ${JSON.stringify(line).replaceAll("$", "\\$")}`),
      "echo 1 > /logs/verifier/reward.txt",
    ].join("\n"),
    files: { "environment/docker-compose.yaml": compose.replaceAll("IMAGE", IMAGE), ...files },
    ...rest,
  };
}

const scored = ({ row, told, log }: Seen) => assert.equal(row?.reward, 1, `${told}\n${log("test-stdout.txt")}`);
/** Notes about services; how a sandbox reaches the network is its own affair. */
const notesOf = ({ row }: Seen): string[] => row!.sandbox.notes.filter((note: string) => !note.startsWith("network: "));
const message = ({ failure, told }: Seen): string => {
  assert.ok(failure, told);
  assert.equal(failure._ng_failure_stage, "seed");
  return failure._ng_failure_message;
};

const CASES: Case[] = [
  {
    id: "names",
    title: "services find each other by name, alias and container_name, and main by its own",
    task: task(
      `services:
  main: {depends_on: {web: {condition: service_healthy}}}
  web:
    image: IMAGE
    container_name: old-name
    networks: {default: {aliases: [shop.example]}}
    ${SERVE}
    ${LISTENS}
`,
      [
        `${get("http://web:8000/")} | grep -q Directory`,
        `${get("http://shop.example:8000/")} | grep -q Directory`,
        `${get("http://old-name:8000/")} | grep -q Directory`,
        "python3 -c \"import socket; [socket.gethostbyname(name) for name in ('web', 'main')]\"",
      ],
    ),
    expect: scored,
  },
  {
    id: "no-network",
    title: "a group without a network reaches its sidecars and nothing else",
    task: task(`services:\n  web:\n    image: IMAGE\n    ${SERVE}\n    ${LISTENS}\n`, [
      `${get("http://web:8000/")} | grep -q Directory`,
      "! python3 -c \"import socket; socket.create_connection(('1.1.1.1', 53), 3)\" 2>/dev/null",
      "! python3 -c \"import socket; socket.gethostbyname('deb.debian.org')\" 2>/dev/null",
    ], { environment: 'network_mode = "no-network"' }),
    expect: (seen) => {
      scored(seen);
      assert.equal(seen.row!.sandbox.network, "no-network");
    },
  },
  {
    id: "order",
    title: "a job has ended and a server is healthy before main starts; both share a named volume",
    task: task(
      `services:
  main:
    depends_on:
      job: {condition: service_completed_successfully}
      web: {condition: service_healthy}
    volumes: ["shared:/shared"]
  job:
    image: IMAGE
    command: ["sh", "-c", "sleep 1; date +%s%N > /shared/job; echo the job is done"]
    volumes: ["shared:/shared"]
  web:
    image: IMAGE
    depends_on: {job: {condition: service_completed_successfully}}
    command: ["sh", "-c", "date +%s%N > /shared/web; exec python3 -m http.server 8000 --directory /shared"]
    volumes: ["shared:/shared"]
    ${LISTENS}
volumes: {shared: }
`,
      [
        '[ "$(cat /shared/job)" -lt "$(cat /shared/web)" ]',
        `[ "$(${get("http://web:8000/job")})" = "$(cat /shared/job)" ]`,
      ],
    ),
    expect: (seen) => {
      scored(seen);
      assert.equal(seen.log("services/job.log"), "the job is done\n");
      assert.deepEqual(notesOf(seen), [], "the end of a job that was waited for is no news");
    },
  },
  {
    id: "shared-network",
    title: "network_mode service: makes two services one host to each other",
    task: task(
      `services:
  web:
    image: IMAGE
    ${SERVE}
    ${LISTENS}
  side:
    image: IMAGE
    network_mode: service:web
    command: python3 -u -m http.server 8001 --directory /tmp
    ${opens("http://localhost:8000/")}
`,
      [`${get("http://web:8001/")} | grep -q Directory`],
    ),
    expect: scored,
  },
  {
    id: "main-network",
    title: "main shares a sidecar's network, lends its own, or has none",
    task: task(
      `services:
  main: {network_mode: "service:web"}
  web:
    image: IMAGE
    ${SERVE}
    ${LISTENS}
`,
      [`${get("http://localhost:8000/")} | grep -q Directory`],
    ),
    expect: scored,
  },
  {
    id: "after-main",
    title: "services that wait for main, and one that lives on main's network",
    task: task(
      `services:
  web:
    image: IMAGE
    depends_on: [main]
    ${SERVE}
    ${LISTENS}
  lent:
    image: IMAGE
    network_mode: service:main
    command: python3 -u -m http.server 8001 --directory /tmp
    ${opens("http://127.0.0.1:8001/")}
`,
      [`${get("http://web:8000/")} | grep -q Directory`, `${get("http://localhost:8001/")} | grep -q Directory`],
    ),
    expect: scored,
  },
  {
    id: "main-none",
    title: "main without a network sees its sidecars' files and nothing of theirs on the network",
    task: task(
      `services:
  main: {network_mode: none, volumes: ["v:/v"]}
  web:
    image: IMAGE
    volumes: ["v:/v"]
    command: [sh, -c, "echo hi > /v/x; exec python3 -m http.server 8000"]
    ${LISTENS}
volumes: {v: }
`,
      ["grep -q hi /v/x", `! ${get("http://web:8000/")} 2>/dev/null`],
    ),
    expect: (seen) => {
      scored(seen);
      assert.equal(seen.row!.sandbox.network, "no-network");
    },
  },
  {
    id: "unhealthy",
    title: "a dependency that never becomes healthy fails the seed with the end of its output",
    task: task(
      `services:
  main: {depends_on: {db: {condition: service_healthy}}}
  db:
    image: IMAGE
    command: ["sh", "-c", "echo cannot open the database; sleep 600"]
    healthcheck: {test: [CMD, sh, -c, "echo still closed >&2; exit 3"], interval: 300ms, retries: 2}
`,
      [],
    ),
    expect: (seen) => {
      assert.match(
        message(seen),
        /: service 'db' failed its healthcheck 2 times: exit 3: still closed: cannot open the database$/,
      );
    },
  },
  {
    id: "early-end",
    title: "a dependency that ends while it is awaited fails the seed at once",
    task: task(
      "services:\n  main: {depends_on: {db: {condition: service_healthy}}}\n  db:\n    image: IMAGE\n" +
        "    command: [sh, -c, 'echo no configuration >&2; exit 5']\n    healthcheck: {test: 'false', interval: 60s}\n",
      [],
    ),
    expect: (seen) => {
      assert.match(message(seen), /: service 'db' exited with 5 before it was healthy: no configuration$/);
    },
  },
  {
    id: "failed-job",
    title: "a job that fails keeps main from starting",
    task: task(
      "services:\n  main: {depends_on: {job: {condition: service_completed_successfully}}}\n" +
        "  job: {image: IMAGE, command: [sh, -c, 'echo bad seed; exit 9']}\n",
      [],
    ),
    expect: (seen) =>
      assert.match(message(seen), /: service 'job' exited with 9, and 'main' waits for its good end: bad seed$/),
  },
  {
    id: "no-program",
    title: "a service whose program is not in its image is named",
    task: task("services:\n  web: {image: IMAGE, entrypoint: [/no/such/program]}\n", []),
    expect: (seen) => assert.match(message(seen), /service 'web': .*\/no\/such\/program/),
  },
  {
    id: "died",
    title: "a sidecar that dies is a note of the row, which keeps its reward",
    task: task("services:\n  web: {image: IMAGE, command: [sh, -c, 'echo bye; sleep 1; exit 7']}\n", ["sleep 3"]),
    expect: (seen) => {
      scored(seen);
      assert.deepEqual(notesOf(seen), ["service 'web' ended during the episode with exit 7"]);
      assert.equal(seen.log("services/web.log"), "bye\n");
    },
  },
  {
    id: "binds",
    title:
      "files of environment/ are mounted as copies: read-only ones cannot be written, others are the episode's own",
    task: task(
      `services:
  main: {volumes: ["./data:/data"], user: nobody}
  web:
    image: IMAGE
    user: nobody
    volumes: ["./seed.txt:/seed.txt:ro", "./data:/data"]
    command: ["sh", "-c", "cat /seed.txt; echo x 2>/dev/null > /seed.txt && echo written; echo mine > /data/web; sleep 600"]
`,
      ["echo mine > /data/main", "[ ! -e /data/web ]", "cat /data/given | grep -q given"],
      { files: { "environment/seed.txt": "seed\n", "environment/data/given": "given\n" } },
    ),
    expect: (seen) => {
      scored(seen);
      assert.equal(seen.log("services/web.log"), "seed\n");
    },
  },
  {
    id: "main",
    title: "what the file says of main holds: command, user, folder, environment, limits",
    task: task(
      `services:
  main:
    command: python3 -m http.server 7000 --directory /tmp
    working_dir: /tmp/made
    user: nobody
    environment: {FROM_FILE: "1", BOTH: file}
    mem_limit: 256m
    ${opens("http://127.0.0.1:7000/")}
  web: {image: IMAGE, command: sleep 600}
`,
      ['[ "$PWD $(whoami) $FROM_FILE $BOTH" = "/tmp/made nobody 1 toml" ]', get("http://127.0.0.1:7000/")],
      { environment: 'env = {BOTH = "toml"}' },
    ),
    expect: scored,
  },
  {
    id: "evidence",
    title: "a hook runs in its sidecar, which shares main's log folders where the file says so",
    task: task(
      `services:
  web:
    image: IMAGE
    command: ["sh", "-c", "echo seen > /tmp/evidence; sleep 600"]
    volumes: ["$\{HOST_ARTIFACTS_PATH}:/out"]
`,
      ['[ "$(cat /logs/artifacts/evidence)" = seen ]', '[ "$(cat /logs/artifacts/made)" = "by the agent" ]'],
      {
        solve: "echo by the agent > /logs/artifacts/made",
        toml: `[[verifier.collect]]
service = "web"
command = "cat /out/made && cp /tmp/evidence /out/evidence && python3 -c 'import socket; socket.gethostbyname(\\"main\\")'"`,
      },
    ),
    expect: (seen) => {
      scored(seen);
      assert.deepEqual(notesOf(seen), []);
    },
  },
  {
    id: "built",
    title: "services are built from below environment/, with arguments, one image for two of them",
    task: task(
      `services:
  main: {depends_on: {api: {condition: service_healthy}}}
  api:
    build: {context: ./api, args: {WORD: built}}
    ${LISTENS}
  twin:
    build: {context: ./api, args: {WORD: twin}}
    ${shell("cat /word; sleep 600")}
`,
      [`[ "$(${get("http://api:8000/word")})" = built ]`],
      {
        files: {
          "environment/api/Dockerfile":
            `FROM ${IMAGE}\nARG WORD=none\nRUN echo $WORD > /word\nENV SERVED=/\nCMD python3 -m http.server 8000 --directory $SERVED\n`,
        },
      },
    ),
    expect: (seen) => {
      scored(seen);
      assert.equal(seen.log("services/twin.log"), "twin\n");
    },
  },
  {
    id: "settings",
    on: ["docker", "podman"],
    title: "settings of a sidecar reach its container",
    task: task(
      `services:
  web:
    image: IMAGE
    hostname: renamed
    read_only: true
    tmpfs: ["/scratch:size=1m,mode=1777"]
    shm_size: 8m
    cap_drop: [CHOWN]
    ulimits: {nofile: 77}
    extra_hosts: {fixed.example: 10.9.8.7}
    ${
        shell(
          "hostname; ulimit -n; grep fixed /etc/hosts | tr '\\t' ' '; touch /x 2>/dev/null || echo read-only; " +
            "touch /scratch/x && echo scratch; chown 1 /scratch/x 2>/dev/null || echo no chown; sleep 600",
        )
      }
`,
      [],
    ),
    expect: (seen) => {
      scored(seen);
      assert.equal(
        seen.log("services/web.log"),
        "renamed\n77\n10.9.8.7 fixed.example\nread-only\nscratch\nno chown\n",
      );
    },
  },
  {
    id: "refused",
    title: "a file that asks for what there is not is left out with its reason",
    task: task("services:\n  web: {image: IMAGE, privileged: true, network_mode: host}\n", []),
    expect: ({ run, row, failure }) => {
      assert.equal(row ?? failure, undefined);
      const [reason] = Object.values(run.skipped).filter((text) => text.includes("privileged"));
      assert.equal(
        reason,
        "Compose file was refused: service 'web': network_mode 'host' is not supported, only none and service:<name>; " +
          "service 'web': privileged is not supported",
      );
    },
  },
];

batch(CASES, { name: "compose", sandboxes: GROUPS, args: imageArgs });

/** What an engine has of the processes `pids`: containers, networks and volumes carry the label of their owner. */
function engineLeftovers(engine: GroupSandbox, pids: readonly number[]): string[] {
  if (engine === "namespace") return [];
  const kinds = [["ps", "-a", "--format", "{{.Names}}"], ["network", "ls", "-q"], ["volume", "ls", "-q"]];
  return pids.flatMap((pid) =>
    kinds.flatMap((words) =>
      spawnSync(engine, [...words, "--filter", `label=gym-harbor.pid=${pid}`], { encoding: "utf8" }).stdout.split("\n")
        .filter(Boolean).map((name) => `${words[0]} ${name}`)
    )
  );
}

const PAIR = `services:
  main: {depends_on: {web: {condition: service_healthy}}, volumes: ["shared:/shared", "./data:/data"]}
  web:
    image: IMAGE
    volumes: ["shared:/shared"]
    ${SERVE}
    ${LISTENS}
volumes: {shared: }
`;

class Runs implements Disposable {
  readonly folder = new TempFolder("compose-runs");
  readonly output = this.folder.join("out", "rollouts.jsonl");
  readonly trace: Trace;

  constructor(private readonly engine: GroupSandbox) {
    this.trace = new Trace(this.folder, engine);
  }

  add(name: string, compose: string, solve = "true", toml = ""): void {
    writeFiles(
      this.folder.join("data", name),
      taskFiles(task(compose, [], { solve, toml, files: { "environment/data/a": "a" } })),
    );
  }

  async start(...more: string[]): Promise<StartedCli> {
    const args = [
      "validate",
      this.folder.join("data"),
      "--sandbox",
      this.engine,
      "--output",
      this.output,
      ...await imageArgs(this.engine),
      ...more,
    ];
    const started = startCli(args, { env: this.trace.env, timeoutMs: 600_000 });
    this.trace.pids.push(started.pid);
    return started;
  }

  leftovers = (): string[] => [
    ...engineLeftovers(this.engine, this.trace.pids),
    ...this.trace.processes(),
    ...this.trace.mounts(),
    ...this.trace.folders(),
  ];

  /** Waits until a `sleep <seconds>.<mark>` runs in one of the sandboxes. */
  async untilSleeping(seconds: number): Promise<void> {
    for (let waited = 0; waited < 90_000; waited += 200) {
      if (this.trace.processes().some((line) => line.includes(`sleep ${seconds}.${this.trace.mark}`))) return;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
    throw new Error("the group did not come up within 90 s");
  }

  [Symbol.dispose](): void {
    this.folder[Symbol.dispose]();
  }
}

for (const engine of GROUPS) {
  sandboxTest(engine, "the tasks of fixtures/compose score 1", async () => {
    using runs = new Runs(engine);
    cpSync(join(REPOSITORY, "fixtures/compose"), runs.folder.join("data"), { recursive: true });
    const names = ["compose-alone", "compose-migrated", "compose-shop"];
    for (const name of names) {
      const file = runs.folder.join("data", name, "task.toml");
      writeFileSync(file, readFileSync(file, "utf8").replace("python:3.12-slim", IMAGE));
    }
    const run = runFiles(runs.output, await (await runs.start("--concurrency", "2")).wait());
    assert.deepEqual(
      run.table.map(([id, , reward]) => `${id} ${reward}`).sort(),
      names.map((one) => `${one} 1`),
      run.stderr,
    );
  });

  sandboxTest(engine, "groups leave nothing after success, failure at seed and a budget that ran out", async () => {
    using runs = new Runs(engine);
    runs.add("good", PAIR);
    runs.add("unhealthy", PAIR.replace(LISTENS, "healthcheck: {test: 'false', interval: 200ms, retries: 1}"));
    runs.add("slow", PAIR, "sleep 60", "[agent]\ntimeout_sec = 2.0\n[verifier]\ntimeout_sec = 30.0");
    const run = runFiles(runs.output, await (await runs.start("--concurrency", "3")).wait());
    const told = JSON.stringify([run.table, run.stderr]);
    assert.deepEqual(run.rows.map((row) => row._ng_task_id.task_id).sort(), ["good", "slow"], told);
    assert.deepEqual(run.failures.map((row) => row._ng_task_id.task_id), ["unhealthy"], told);
    assert.deepEqual(runs.leftovers(), [], told);
  });

  sandboxTest(engine, "a group that is interrupted while it runs, or while it comes up, is gone", async () => {
    using runs = new Runs(engine);
    runs.add("long", PAIR, `sleep 300.${runs.trace.mark}`);
    const first = await runs.start();
    await runs.untilSleeping(300);
    first.kill("SIGINT");
    assert.equal((await first.wait()).code, 130);
    assert.deepEqual(runs.leftovers(), []);
    const slow = `${shell(`exec sleep 600.${runs.trace.mark}`)}\n    healthcheck: {test: 'false', interval: 300s}`;
    runs.add("long", PAIR.replace(`${SERVE}\n    ${LISTENS}`, slow));
    const second = await runs.start();
    await runs.untilSleeping(600);
    second.kill("SIGTERM");
    assert.equal((await second.wait()).code, 143);
    assert.deepEqual(runs.leftovers(), []);
    assert.deepEqual(readRows(runs.output), [], "a cancelled episode leaves no row");
  });

  sandboxTest(engine, "sandbox gc removes a group whose run was killed", async () => {
    using runs = new Runs(engine);
    runs.add("long", PAIR, `sleep 300.${runs.trace.mark}`);
    const started = await runs.start();
    await runs.untilSleeping(300);
    started.kill("SIGKILL");
    await started.wait();
    // Engines' sidecars have a reaper beside their owner, which may have been faster than we are now.
    const gc = await runCli(["sandbox", "gc"], { env: runs.trace.env });
    assert.equal(gc.code, 0, gc.stderr);
    assert.deepEqual(await runs.trace.gone(runs.leftovers, 5000), []);
  });

  sandboxTest(engine, "F1, F5: twenty groups at a time come up and go", async () => {
    using runs = new Runs(engine);
    for (let n = 0; n < 20; n++) {
      runs.add(`g${n}`, `services:\n  web:\n    image: IMAGE\n    ${SERVE}\n    ${LISTENS}\n`, get("http://web:8000/"));
    }
    const run = runFiles(runs.output, await (await runs.start("--concurrency", "20")).wait());
    assert.equal(
      run.rows.filter((row) => row.reward === 1).length,
      20,
      `${run.stderr}\n${JSON.stringify(run.failures)}`,
    );
    assert.deepEqual(runs.leftovers(), []);
  });

  sandboxTest(engine, "a secret of this machine reaches its sidecar, and no file of the run", async () => {
    using runs = new Runs(engine);
    const compose = `services:
  web:
    image: IMAGE
    environment: ["MY_API_KEY", "OTHER=$\{MY_API_KEY}-suffix"]
    command: [sh, -c, 'echo "the key is $$MY_API_KEY $$OTHER"; sleep 600']
`;
    runs.add("secret", compose);
    const given = await imageArgs(engine);
    const args = ["validate", runs.folder.join("data"), "--sandbox", engine, "--output", runs.output, ...given];
    const result = await runCli(args, { env: { MY_API_KEY: "sk-0123456789" } });
    assert.equal(result.code, 0, result.stderr);
    const [row] = readRows(runs.output);
    const log = readFileSync(join(row!.verifier_logs_dir, "services/web.log"), "utf8");
    assert.equal(log, "the key is [MY_API_KEY] [MY_API_KEY]-suffix\n");
    const found = spawnSync("grep", ["-rl", "sk-0123456789", runs.folder.path], { encoding: "utf8" });
    assert.equal(found.stdout, "");
  });

  sandboxTest(
    engine,
    "compose_overlay goes over every task's file, and makes a group of a task without one",
    async () => {
      using runs = new Runs(engine);
      runs.add("own", "services:\n  web: {image: IMAGE, command: sleep 600, environment: {A: own}}\n");
      writeFiles(
        runs.folder.join("data", "none"),
        taskFiles({ test: `${get("http://extra:8000/")} && echo 1 > /logs/verifier/reward.txt` }),
      );
      writeFileSync(
        runs.folder.join("over.yaml"),
        `services:\n  extra:\n    image: ${IMAGE}\n    ${SERVE}\n    ${LISTENS}\n`,
      );
      const run = runFiles(
        runs.output,
        await (await runs.start(`harbor_environment_server.compose_overlay=${runs.folder.join("over.yaml")}`)).wait(),
      );
      assert.deepEqual(
        run.table.map(([id, , reward]) => [id, reward]).sort(),
        [["none", "1"], ["own", "1"]],
        run.stderr,
      );
    },
  );
}
