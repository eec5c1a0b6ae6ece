import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { runEpisode } from "../../../lib/episode/run.ts";
import { episodeSettings } from "../../../lib/episode/settings.ts";
import { HarborError } from "../../../lib/errors.ts";
import type { FailureRow, ResultRow } from "../../../lib/rollouts/schema.ts";
import type { Task } from "../../../lib/task/task.ts";
import { atifProblems } from "../../../lib/verifier/atif.ts";
import { episodeDeps, planOf } from "../../support/episode.ts";
import { type FakeOptions, FakeProvider } from "../../support/fake_provider.ts";
import { plainTask } from "../../support/loaded_task.ts";
import { type Files, TempFolder } from "../../support/tasks.ts";

const never = new AbortController().signal;
const lost = (details = {}) => new HarborError("sandbox.lost", "the container is gone", { details });

interface Case extends FakeOptions {
  task?: (task: Task) => Task;
  files?: Files;
  deps?: Parameters<typeof episodeDeps>[2];
}

async function run(given: Case = {}) {
  const folder = new TempFolder("episode");
  const provider = new FakeProvider(given);
  const deps = episodeDeps(provider, folder.path, given.deps);
  const task = plainTask(folder.join("data"), "hello", {}, given.files);
  const outcome = await runEpisode(planOf(given.task?.(task) ?? task), deps, never);
  return { outcome, provider, deps, folder };
}

async function result(given: Case = {}): Promise<ResultRow> {
  const { outcome, folder } = await run(given);
  folder[Symbol.dispose]();
  assert.equal(outcome.kind, "result", JSON.stringify(outcome.row));
  return outcome.row as ResultRow;
}

async function failure(given: Case = {}): Promise<FailureRow> {
  const { outcome, folder, provider } = await run(given);
  folder[Symbol.dispose]();
  assert.equal(outcome.kind, "failure", JSON.stringify(outcome.row));
  assert.equal("reward" in outcome.row, false, "a failure row never carries a reward");
  assert.equal(provider.open_, 0, "its sandbox is gone");
  return outcome.row as FailureRow;
}

test("runEpisode() seeds, solves, verifies and cleans up in four calls", async () => {
  const { outcome, provider, deps, folder } = await run();
  using _ = folder;
  assert.deepEqual(provider.log, ["open 0-0", "oracle 0-0", "verifier 0-0", "close 0-0"]);
  const row = outcome.row as ResultRow;
  assert.deepEqual(
    {
      reward: row.reward,
      rewards: row.rewards,
      mask: row.mask_sample,
      kind: row.failure_kind,
      mode: row.verifier_mode,
    },
    { reward: 1, rewards: { reward: 1 }, mask: false, kind: null, mode: "shared" },
  );
  assert.equal(row.response_metadata.oracle, "solved");
  assert.deepEqual(row.sandbox, { provider: "docker", network: "public", limits: "enforced", notes: [] });
  assert.equal(row.image, "plain:1");
  const phases = deps.events.flatMap((event) => (event.kind === "phase" ? [event.phase] : []));
  assert.deepEqual(phases, ["seeding", "agent", "verifying", "cleaning"]);
  const logs = readdirSync(row.verifier_logs_dir!).sort();
  assert.deepEqual(logs, ["reward.txt", "test-stdout.txt", "trajectory.json"]);
  assert.deepEqual(atifProblems(JSON.parse(readFileSync(join(row.verifier_logs_dir!, "trajectory.json"), "utf8"))), []);
  assert.deepEqual(readdirSync(folder.join("scratch")), [], "the private copy is gone");
});

test("A16: runEpisode() gives tests and solution to nobody before their phase", async () => {
  const { provider, folder } = await run();
  using _ = folder;
  assert.doesNotMatch(provider.specs[0]!.setup ?? "", /tests|solution/);
  const [oracle, verifier] = provider.commands;
  assert.deepEqual(oracle!.unpack?.map(({ to }) => to), ["/solution"]);
  assert.deepEqual(verifier!.unpack?.map(({ to }) => to), ["/tests", "/logs/agent"]);
  assert.match(verifier!.before!, /empty \/tests\nempty \/logs\/verifier/);
});

test("A16: an agent that is not the oracle gets no copy of the solution", async () => {
  const { provider, folder } = await run({ deps: { agentName: "nop" } });
  using _ = folder;
  assert.deepEqual(provider.log, ["open 0-0", "verifier 0-0", "close 0-0"]);
  assert.equal(JSON.stringify(provider.commands).includes("solution"), false);
});

// episodes §3.7, row by row
const verdicts: [string, Case, Partial<ResultRow>, RegExp?][] = [
  [
    "a sandbox operation that failed",
    {
      answers: { verifier: { throws: new HarborError("transfer.failed", "tar: no space") } },
    },
    { mask_sample: true, failure_kind: "provider_unavailable", verifier_mode: null },
    /tar: no space/,
  ],
  ["a sandbox that is gone", { answers: { verifier: { throws: lost() } } }, {
    mask_sample: true,
    failure_kind: "provider_unavailable",
  }],
  ["a sandbox that the OOM killer took", { answers: { verifier: { throws: lost({ oomKilled: true }) } } }, {
    mask_sample: true,
    failure_kind: "provider_oom_killed",
  }],
  [
    "an ENTRYPOINT that failed during the rollout",
    {
      image: { entrypoint: ["/start.sh"] },
      entrypoint: [null, null, 3],
    },
    { mask_sample: true, failure_kind: "harbor:entrypoint_failed", rewards: { reward: 1 } },
    /exited with 3/,
  ],
  [
    "test.sh that could not be started",
    {
      answers: {
        verifier: { exitCode: 127, stdout: "gym-harbor: cannot start /tests/test.sh: the image has no bash\n" },
      },
    },
    { mask_sample: true, failure_kind: "verifier_error", verifier_mode: null },
    /has no bash/,
  ],
  ["a reward beside a bad exit code", {
    answers: { verifier: { exitCode: 1, files: { "reward.txt": "0.5" } } },
  }, { reward: 0.5, mask_sample: false, failure_kind: null, verifier_return_code: 1 }],
  ["a reward that was written before the limit", {
    answers: { verifier: { ended: "deadline", exitCode: 137, files: { "reward.txt": "1" } } },
  }, { reward: 1, mask_sample: false, failure_kind: null, verifier_return_code: null }],
  [
    "B16: test.sh past its limit",
    {
      answers: { verifier: { ended: "deadline", exitCode: 137, files: { "test-stdout.txt": "begun\n" } } },
    },
    { reward: 0, mask_sample: false, failure_kind: "harbor:verifier_timeout" },
    /600 s[^]*begun$/,
  ],
  ["a reward file that is unusable", { answers: { verifier: { files: { "reward.txt": "nan" } } } }, {
    reward: 0,
    mask_sample: false,
    failure_kind: "harbor:invalid_reward",
  }],
  ["A8: no reward file", { answers: { verifier: { exitCode: 3, files: { "test-stdout.txt": "oops\n" } } } }, {
    reward: 0,
    mask_sample: false,
    failure_kind: "harbor:missing_reward",
    verifier_return_code: 3,
  }, /exited with 3\noops$/],
  ["exit 137 without a reward is no timeout", { answers: { verifier: { exitCode: 137, oomKilled: true } } }, {
    failure_kind: "harbor:missing_reward",
    mask_sample: false,
  }, /137.*out of memory/],
  [
    "C5: CRLF in test.sh",
    {
      files: { "tests/test.sh": "#!/bin/bash\r\necho 1 > /logs/verifier/reward.txt\r\n" },
      answers: { verifier: {} },
    },
    { failure_kind: "harbor:missing_reward", mask_sample: false },
    /CRLF/,
  ],
];
for (const [what, given, wanted, reason] of verdicts) {
  test(`runEpisode() judges ${what}`, async () => {
    const row = await result(given);
    const found = Object.fromEntries(Object.keys(wanted).map((key) => [key, row[key as keyof ResultRow]]));
    assert.deepEqual(found, wanted);
    if (row.mask_sample) assert.equal(row.reward, 0);
    if (reason !== undefined) assert.match(row.failure_reason ?? "", reason);
  });
}

test("runEpisode() masks an episode whose log folder cannot be made", async () => {
  using folder = new TempFolder("nolog");
  writeFileSync(folder.join("file"), "");
  const row = await result({ deps: { logsRoot: folder.join("file", "verifier") } });
  assert.deepEqual([row.mask_sample, row.failure_kind, row.verifier_logs_dir], [true, "persistence_failed", null]);
});

test("A14: runEpisode() notes tests that could not fetch their tools", async () => {
  const output = "curl: (6) Could not resolve host: astral.sh\n/tests/test.sh: line 3: uvx: command not found\n";
  const row = await result({ answers: { verifier: { files: { "reward.txt": "0", "test-stdout.txt": output } } } });
  assert.deepEqual([row.reward, row.failure_kind], [0, null]);
  assert.match(row.sandbox.notes.join("\n"), /bootstrap failed\?.*uvx: command not found/);
});

// episodes §4
const failures: [string, Case, Partial<FailureRow>, RegExp][] = [
  ["A-1: a task that changed since it was planned", { deps: { digestNow: "0".repeat(64) } }, {
    _ng_failure_stage: "seed",
    _ng_failure_terminal: true,
    failure_kind: undefined,
  }, /changed since materialization; re-materialize the taskset/],
  [
    "an image that cannot be had",
    {
      prepareFails: { hello: new HarborError("image.failed", "pull failed: toomanyrequests") },
    },
    { _ng_failure_stage: "seed", _ng_failure_terminal: false, failure_kind: "provider_unavailable" },
    /^Could not set up sandbox for 'hello': pull failed: toomanyrequests/,
  ],
  ["a sandbox that does not start", { openFails: new HarborError("sandbox.failed", "no such user: x") }, {
    _ng_failure_stage: "seed",
    failure_kind: "provider_unavailable",
    _ng_failure_terminal: false,
  }, /no such user: x/],
  [
    "a host variable that is not set",
    {
      task: (task) => ({ ...task, verifier: { ...task.verifier, env: { KEY: "${GH_UNSET}" } } }),
    },
    { _ng_failure_stage: "seed", _ng_failure_terminal: false },
    /GH_UNSET/,
  ],
  ["an ENTRYPOINT that fails at once", { image: { entrypoint: ["/start.sh"] }, entrypoint: [1] }, {
    _ng_failure_stage: "seed",
  }, /ENTRYPOINT exited with 1: entrypoint says hello/],
  [
    "a health check that never passes",
    {
      answers: { server: { exitCode: 1, stderr: "refused" } },
      task: (task) => ({
        ...task,
        environment: {
          ...task.environment,
          healthcheck: {
            command: "curl x",
            interval_sec: 0.01,
            timeout_sec: 1,
            start_period_sec: 0,
            start_interval_sec: 0.01,
            retries: 3,
          },
        },
      }),
    },
    { _ng_failure_stage: "seed" },
    /Healthcheck failed 3 times: 'curl x': refused/,
  ],
  [
    "B4: a sandbox that the agent destroyed",
    {
      answers: { oracle: { throws: lost() } },
      alive: { state: "gone", oomKilled: true, exitCode: 137, text: "OOMKilled" },
    },
    { _ng_failure_stage: "agent", failure_kind: "provider_oom_killed", _ng_failure_terminal: false },
    /exit code 137/,
  ],
  ["a bug of ours", { answers: { oracle: { throws: new TypeError("x is undefined") } } }, {
    _ng_failure_terminal: true,
    failure_kind: undefined,
    _ng_failure_stage: undefined,
  }, /^Unhandled environment server error: TypeError: x is undefined/],
  [
    "an episode past its task's budget",
    {
      answers: { verifier: { until: new Promise(() => {}) } },
      deps: { settings: episodeSettings({ harness_setup_allowance_s: 0, verifier_grace_s: 0 }) },
      task: (task) => ({
        ...task,
        agent: { timeout_sec: 0.1 },
        verifier: { ...task.verifier, timeout_sec: 0.1 },
      }),
    },
    { failure_kind: "harbor:task_deadline", _ng_failure_stage: "verification", _ng_failure_terminal: false },
    /^Episode exceeded the time budget of task hello$/,
  ],
  [
    "an episode past the hard cap",
    {
      answers: { oracle: { until: new Promise(() => {}) } },
      deps: { settings: episodeSettings({ default_episode_timeout_seconds: 0.1 }) },
    },
    { failure_kind: undefined, _ng_failure_stage: undefined, _ng_failure_terminal: false },
    /^Episode timed out$/,
  ],
];
for (const [what, given, wanted, message] of failures) {
  test(`runEpisode() fails ${what}`, async () => {
    const row = await failure(given);
    const found = Object.fromEntries(Object.keys(wanted).map((key) => [key, row[key as keyof FailureRow]]));
    assert.deepEqual(found, wanted);
    assert.match(row._ng_failure_message, message);
  });
}

test("runEpisode() verifies what a solution left that failed or ran past its limit", async () => {
  const failed = await result({ answers: { oracle: { exitCode: 3, stdout: "half\n" } } });
  assert.deepEqual([failed.reward, failed.response_metadata], [1, { oracle: "failed", oracle_return_code: "3" }]);
  const late = await result({
    answers: { oracle: { ended: "deadline", exitCode: 137 }, server: { stdout: "begun-to-solve\n" } },
  });
  assert.deepEqual([late.reward, late.agent_timed_out, late.response_metadata.oracle_error_type], [1, true, "timeout"]);
  assert.match(JSON.stringify(late.response.output), /begun-to-solve/, "B3: its output is kept");
});

test("runEpisode() gives answer.md as the answer and runs nothing", async () => {
  const { outcome, provider, folder } = await run({
    files: { "solution/answer.md": "42\n" },
    task: (task) => ({ ...task, solution: { kind: "answer.md", path: join(task.folder, "solution/answer.md") } }),
  });
  using _ = folder;
  assert.match(JSON.stringify((outcome.row as ResultRow).response.output), /"text":"42\\n"/);
  assert.deepEqual(provider.log, ["open 0-0", "verifier 0-0", "close 0-0"]);
});

test("runEpisode() grades by verifier.py through a shim over /tests", async () => {
  const { provider, folder } = await run({
    files: { "tests/verifier.py": "def verify():\n    return 1\n" },
    task: (task) => ({
      ...task,
      taskData: { answer: 4 },
      grader: { kind: "python", verifier: join(task.folder, "tests/verifier.py"), tests: join(task.folder, "tests") },
    }),
  });
  using _ = folder;
  const shim = provider.commands[1]!.unpack!.find((tree) => tree.extra?.["test.sh"] !== undefined)!;
  assert.equal(shim.to, "/tests");
  assert.equal(shim.extra![".ng/task_data.json"]!.data, '{"answer":4}');
});

test("runEpisode() runs tests as the image's user, not as the agent's", async () => {
  const { provider, folder } = await run({ task: (task) => ({ ...task, agent: { timeout_sec: 9, user: "agent" } }) });
  using _ = folder;
  assert.deepEqual(provider.commands.map(({ user }) => user), ["agent", "root"]);
});

test("G1: runEpisode() keeps values of this machine's environment out of rows and logs", async () => {
  const { outcome, provider, folder } = await run({
    deps: { hostEnv: { API_KEY: "sk-very-secret" } },
    task: (task) => ({ ...task, verifier: { ...task.verifier, env: { KEY: "${API_KEY}" } } }),
    answers: {
      oracle: { stdout: "key is sk-very-secret" },
      verifier: {
        files: {
          "reward.txt": "0",
          "test-stdout.txt": "sk-very-secret\n",
          "deep/report.xml": "<key>sk-very-secret</key>",
        },
      },
    },
  });
  using _ = folder;
  assert.deepEqual(provider.commands[1]!.env, { KEY: "sk-very-secret" });
  const row = outcome.row as ResultRow;
  assert.doesNotMatch(JSON.stringify(row), /sk-very-secret/);
  const logs = readdirSync(row.verifier_logs_dir!, { recursive: true, withFileTypes: true }).filter((one) =>
    one.isFile()
  );
  assert.ok(logs.some(({ name }) => name === "report.xml"));
  for (const { parentPath, name } of logs) {
    assert.doesNotMatch(readFileSync(join(parentPath, name), "utf8"), /sk-very-secret/, name);
  }
});

test("G1: what the operator gives every sandbox as a secret stays out of rows too", async () => {
  const row = await result({
    deps: { settings: episodeSettings({ sandbox_env: { HF_TOKEN: "hf-hidden", LANG: "C.UTF-8" } }) },
    answers: { oracle: { stdout: "hf-hidden in C.UTF-8" } },
  });
  assert.match(JSON.stringify(row.response), /\[HF_TOKEN\] in C\.UTF-8/);
});

test("every table's variables are wanted at seed, the solution's only by who runs it", async () => {
  const needing = (task: Task): Task => ({
    ...task,
    environment: { ...task.environment, env: { KEY: "${FIRST}" } },
    verifier: { ...task.verifier, env: { KEY: "${SECOND}" } },
    solutionEnv: { KEY: "${THIRD}" },
  });
  const row = await failure({ task: needing });
  assert.match(row._ng_failure_message, /FIRST, SECOND, THIRD not set on this machine/);
  const deps = { agentName: "nop", hostEnv: { FIRST: "1", SECOND: "2" } };
  assert.equal((await result({ task: needing, deps })).reward, 1);
});

test("a variable that Linux passes to no program is told at seed, by its table, and is the task's fault", async () => {
  const huge = { HUGE: "${VALUE}" };
  const rows: [string, (task: Task) => Partial<Task>][] = [
    ["environment.env", (task) => ({ environment: { ...task.environment, env: huge } })],
    ["verifier.env", (task) => ({ verifier: { ...task.verifier, env: huge } })],
    ["solution.env", () => ({ solutionEnv: huge })],
  ];
  for (const [table, change] of rows) {
    const row = await failure({
      task: (task) => ({ ...task, ...change(task) }),
      deps: { hostEnv: { VALUE: "x".repeat(131_072) } },
    });
    assert.match(row._ng_failure_message, new RegExp(`"HUGE" of ${table} cannot be set: it has 131077 bytes`));
    assert.deepEqual([row._ng_failure_stage, row.failure_kind, row._ng_failure_terminal], ["seed", undefined, true]);
  }
});

test("G1: a failure row holds no value of this machine's environment either", async () => {
  const row = await failure({
    deps: { hostEnv: { API_KEY: "sk-very-secret" } },
    task: (task) => ({ ...task, environment: { ...task.environment, env: { KEY: "${API_KEY}" } } }),
    openFails: new HarborError("sandbox.failed", "the engine said: KEY=sk-very-secret is too long"),
  });
  assert.match(row._ng_failure_message, /KEY=\[API_KEY\] is too long/);
  assert.doesNotMatch(JSON.stringify(row), /sk-very-secret/);
});

test("runEpisode() throws the end of the run, cleans up and leaves no outcome", async () => {
  using folder = new TempFolder("abort");
  const abort = new AbortController();
  const oracle = () => {
    setTimeout(() => abort.abort(new HarborError("aborted", "interrupted by SIGINT")));
    return { until: new Promise(() => {}) };
  };
  const provider = new FakeProvider({ answers: { oracle } });
  const running = runEpisode(planOf(plainTask(folder.path)), episodeDeps(provider, folder.path), abort.signal);
  await assert.rejects(running, { code: "aborted" });
  assert.deepEqual(provider.log, ["open 0-0", "oracle 0-0", "close 0-0"]);
});

test("runEpisode() still returns a verdict that was known when the run ended", async () => {
  using folder = new TempFolder("known");
  const abort = new AbortController();
  const provider = new FakeProvider({
    answers: {
      verifier: () => {
        setTimeout(() => abort.abort(new HarborError("aborted", "interrupted by SIGINT")), 0);
        return { files: { "reward.txt": "1" } };
      },
    },
  });
  const outcome = await runEpisode(planOf(plainTask(folder.path)), episodeDeps(provider, folder.path), abort.signal);
  assert.equal(outcome.kind === "result" && outcome.row.reward, 1);
});

test("runEpisode() keeps a failed episode's sandbox on request and names the way in", async () => {
  const { provider, deps, folder } = await run({
    deps: { keepFailed: true },
    answers: { verifier: { files: { "reward.txt": "0" } } },
  });
  using _ = folder;
  assert.equal(provider.kept, 1);
  const kept = deps.events.flatMap((event) => (event.kind === "kept" ? [event.enter] : []));
  assert.deepEqual(kept, ["docker exec -it fake-0-0 bash"]);
  const passed = await run({ deps: { keepFailed: true } });
  assert.equal(passed.provider.kept, 0);
  passed.folder[Symbol.dispose]();
});

test("B12: runEpisode() hands its row on although the sandbox cannot be removed", async () => {
  const { outcome, deps, folder } = await run({ disposeFails: new Error("rm hangs") });
  using _ = folder;
  assert.equal(outcome.kind, "result");
  assert.match(JSON.stringify(deps.events), /is left over: rm hangs; gym-harbor sandbox gc removes it/);
});

test("runEpisode() uploads environment/ where the image does not have it", async () => {
  const { provider, folder } = await run({
    files: { "environment/data.csv": "1" },
    task: (task) => ({ ...task, image: { ...task.image, uploads: true } }),
  });
  using _ = folder;
  assert.deepEqual(provider.log.slice(0, 3), ["open 0-0", "server 0-0", "oracle 0-0"]);
  assert.equal(provider.commands[0]!.unpack![0]!.to, "/app");
  assert.equal(existsSync(folder.join("scratch")), true);
});

test("E16: runEpisode() ends the run when this machine's disk is full, instead of masking the row", async () => {
  const full = Object.assign(new Error("ENOSPC: no space left on device, write"), { code: "ENOSPC" });
  const throws = new HarborError("transfer.failed", "Cannot bring /logs/verifier out", { cause: full });
  await assert.rejects(run({ answers: { verifier: { throws } } }), (error) => {
    assert.ok(error instanceof HarborError);
    assert.deepEqual([error.code, error.hint], [
      "store.unwritable",
      "free some space, then continue with --resume; or name a folder on another disk with --output",
    ]);
    return true;
  });
});
