import assert from "node:assert/strict";
import { appendFileSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { HarborError } from "../../../lib/errors.ts";
import { episodeSettings } from "../../../lib/episode/settings.ts";
import { runExit, validateExit } from "../../../lib/report/exit.ts";
import { evaluateIn, tasksIn, told } from "../../support/evaluation.ts";
import { FakeProvider } from "../../support/fake_provider.ts";
import { plainTask } from "../../support/loaded_task.ts";
import { readRows, TempFolder } from "../../support/tasks.ts";
import { runPaths } from "../../../lib/rollouts/paths.ts";

const NAMES = ["a", "b", "c", "d"];
const aborted = () => new HarborError("aborted", "interrupted by SIGINT");
// deno-lint-ignore no-explicit-any -- rows as written
const ids = (rows: any[]): string[] => rows.map((row) => row._ng_task_id.task_id).sort();

test("evaluate() leaves every file of the run at its place", async () => {
  using folder = new TempFolder("files");
  const { files, rows, summary, result, paths } = await evaluateIn(folder, { tasks: tasksIn(folder, ["b", "a"]) });
  assert.deepEqual(files, [
    "images.json",
    "rollouts.jsonl",
    "rollouts_failures.jsonl",
    "rollouts_materialized_inputs.jsonl",
    "rollouts_run_summary.json",
    "run_config_harbor_oracle.yaml",
    "skipped.json",
    "tasks_harbor_oracle.jsonl",
    "verifier",
  ]);
  assert.deepEqual(ids(rows), ["a", "b"]);
  assert.deepEqual(summary.counts, { selected: 2, results: 2, masked: 0, failed: 0, missing: 0 });
  assert.deepEqual(summary.tasks.map((entry: { task_id: string }) => entry.task_id), ["a", "b"]);
  assert.equal(summary.files.rollouts, "rollouts.jsonl");
  assert.equal(summary.files.aggregate_metrics, null);
  assert.deepEqual(JSON.parse(readFileSync(paths.images, "utf8")), ["plain:1"]);
  assert.equal(validateExit(result), 0);
});

test("evaluate() gives summary entries their published keys", async () => {
  using folder = new TempFolder("entry");
  const { summary, rows } = await evaluateIn(folder);
  const [entry] = summary.tasks;
  assert.deepEqual(Object.keys(summary), [
    "schema_version",
    "command",
    "target",
    "taskset",
    "task_source",
    "rows_task_source",
    "agent",
    "dataset",
    "summary_dir",
    "files",
    "stale_files",
    "counts",
    "tasks",
    "skipped",
    "unvalidated",
  ]);
  assert.deepEqual(Object.keys(entry), [
    ...["taskset", "task_id", "task_index", "rollout_index", "status", "reward", "mask_sample", "failure_kind"],
    ...["verifier", "response_metadata", "image", "sandbox", "paths", "missing_paths", "input"],
  ]);
  const session = rows[0].verifier_logs_dir.split("/").at(-1);
  assert.match(session, /^session-hello__[a-z0-9]{7}$/);
  assert.deepEqual(entry.paths, {
    verifier_logs: `verifier/${session}`,
    test_stdout: `verifier/${session}/test-stdout.txt`,
    trajectory: `verifier/${session}/trajectory.json`,
    entrypoint_stdout: null,
    artifacts: null,
  });
  assert.deepEqual(entry.verifier.rewards, { reward: 1 });
  assert.deepEqual(entry.input.metadata, { agent_timeout_sec: "900.0" });
  assert.equal(entry.image, "plain:1");
});

test("evaluate() writes prepared and materialized rows as published", async () => {
  using folder = new TempFolder("rows");
  const task = plainTask(folder.join("my-dataset"), "hello", { taskData: { answer: 4 } });
  const { paths } = await evaluateIn(folder, { tasks: [task], run: { repeats: 2 } });
  const read = (path: string) => readFileSync(path, "utf8").trim().split("\n").map((line) => JSON.parse(line));
  const prepared = read(paths.taskRows);
  const materialized = read(paths.materialized);
  assert.equal(prepared.length, 1);
  assert.deepEqual(prepared[0].task_id, { taskset: "my-dataset", task_id: "hello" });
  assert.equal(prepared[0].task_input.task_data.answer, 4);
  assert.equal(prepared[0].task_input.task_data._ng_digest, prepared[0]._ng_digest);
  assert.deepEqual(prepared[0].agent_ref, { type: "responses_api_agents", name: "harbor_oracle" });
  assert.deepEqual(materialized.map((row) => [row._ng_task_index, row._ng_rollout_index]), [[0, 0], [0, 1]]);
});

test("evaluate() leaves out what does not load, has no solution, or is not in this version", async () => {
  using folder = new TempFolder("out");
  const data = folder.join("my-dataset");
  const step = { name: "one" } as never;
  const { result, summary, provider } = await evaluateIn(folder, {
    tasks: [
      plainTask(data, "good"),
      plainTask(data, "unsolved", { solution: null }),
      plainTask(data, "stepped", { steps: [step] }),
    ],
    run: { unloadable: { broken: "broken/task.toml: line 1" } },
  });
  assert.deepEqual(summary.skipped, { broken: "broken/task.toml: line 1", stepped: "not in this version: steps" });
  assert.deepEqual(summary.unvalidated, { unsolved: "no reference solution" });
  assert.deepEqual(provider.log, ["open 0-0", "oracle 0-0", "verifier 0-0", "close 0-0"]);
  assert.equal(validateExit(result), 1, "a folder did not load");
});

test("evaluate() writes a summary although no task has a solution, and needs no sandbox for it", async () => {
  using folder = new TempFolder("none");
  const { summary, result } = await evaluateIn(folder, {
    tasks: [plainTask(folder.join("my-dataset"), "hello", { solution: null })],
    deps: { provider: () => Promise.reject(new Error("no sandbox is needed")) },
  });
  assert.deepEqual(summary.counts.selected, 0);
  assert.equal(validateExit(result), 1);
});

test("evaluate() never has more episodes at a time than asked for", async () => {
  using folder = new TempFolder("conc");
  const slow = new FakeProvider({ answers: { oracle: { until: new Promise((resolve) => setTimeout(resolve, 200)) } } });
  const { provider, rows } = await evaluateIn(folder, {
    provider: slow,
    tasks: tasksIn(folder, NAMES),
    run: { concurrency: 2 },
  });
  assert.equal(provider.mostOpen, 2);
  assert.equal(rows.length, 4);
});

test("A13: one image that cannot be had fails its task alone", async () => {
  using folder = new TempFolder("a13");
  const provider = new FakeProvider({ prepareFails: { b: new HarborError("image.failed", "no such image") } });
  const { rows, failures, result } = await evaluateIn(folder, { provider, tasks: tasksIn(folder, NAMES) });
  assert.deepEqual([ids(rows), ids(failures)], [["a", "c", "d"], ["b"]]);
  assert.deepEqual([validateExit(result), runExit(result)], [1, 0]);
});

test("evaluate() leaves out what the sandbox cannot do, before anything runs", async () => {
  using folder = new TempFolder("unsup");
  const provider = new FakeProvider({ prepareFails: { a: new HarborError("task.unsupported", "no gpu here") } });
  const { summary, rows } = await evaluateIn(folder, { provider, tasks: tasksIn(folder, ["a", "b"]) });
  assert.deepEqual([summary.skipped, ids(rows)], [{ a: "no gpu here" }, ["b"]]);
});

test("a fresh start keeps the old results as .bak and says so; --resume goes on with them", async () => {
  using folder = new TempFolder("bak");
  const tasks = tasksIn(folder, ["a", "b"]);
  const first = await evaluateIn(folder, { tasks });
  const resumed = await evaluateIn(folder, { tasks, run: { resume: true } });
  assert.deepEqual([resumed.provider.log, resumed.rows], [[], first.rows], "nothing runs again");
  assert.deepEqual(resumed.summary.counts.results, 2);
  const fresh = await evaluateIn(folder, { tasks });
  assert.ok(existsSync(`${fresh.paths.rollouts}.bak`));
  assert.match(told(fresh.events), /rollouts\.jsonl\.bak/);
  assert.equal(fresh.rows.length, 2);
});

test("I1: resume runs again what failed, as its next attempt, and never what is scored", async () => {
  using folder = new TempFolder("i1");
  const tasks = tasksIn(folder, ["a", "b"]);
  const provider = new FakeProvider({ prepareFails: { b: new HarborError("image.failed", "pull failed") } });
  await evaluateIn(folder, { tasks, provider });
  const { rows, summary, provider: second } = await evaluateIn(folder, { tasks, run: { resume: true } });
  assert.deepEqual(second.log.filter((line) => line.startsWith("open")), ["open 1-0-a1"]);
  assert.deepEqual(rows.map((row) => row._ng_attempt_index).sort(), [0, 1]);
  assert.equal(summary.counts.failed, 0);
});

test("resume gives a rollout up after three failures, or one that is terminal", async () => {
  using folder = new TempFolder("giveup");
  const tasks = tasksIn(folder, ["a"]);
  const provider = () => new FakeProvider({ openFails: new HarborError("sandbox.failed", "no") });
  for (const resume of [false, true, true, true]) {
    await evaluateIn(folder, { tasks, provider: provider(), run: { resume } });
  }
  const { failures, summary } = await evaluateIn(folder, { tasks, run: { resume: true } });
  assert.equal(failures.length, 3);
  assert.deepEqual([summary.counts.failed, summary.tasks[0].failure.attempt], [1, 2]);
});

test("I2: resume cuts half a last row off, says so and runs it again", async () => {
  using folder = new TempFolder("i2");
  const tasks = tasksIn(folder, ["a", "b"]);
  const first = await evaluateIn(folder, { tasks, run: { concurrency: 1 } });
  const text = readFileSync(first.paths.rollouts, "utf8");
  writeFileSync(first.paths.rollouts, text.slice(0, -30));
  const { rows, events } = await evaluateIn(folder, { tasks, run: { resume: true } });
  assert.deepEqual(ids(rows), ["a", "b"]);
  assert.match(told(events), /rollouts\.jsonl/);
});

test("I2: resume names a bad row in the middle by file and line and rewrites nothing", async () => {
  using folder = new TempFolder("i2m");
  const first = await evaluateIn(folder);
  const text = `{"half\n${readFileSync(first.paths.rollouts, "utf8")}`;
  writeFileSync(first.paths.rollouts, text);
  await assert.rejects(evaluateIn(folder, { run: { resume: true } }), { code: "store.corrupt", message: /jsonl:1/ });
  assert.equal(readFileSync(first.paths.rollouts, "utf8"), text);
});

test("resume onto another agent or dataset is refused by name, and nothing is written", async () => {
  using folder = new TempFolder("other");
  const first = await evaluateIn(folder);
  const before = readFileSync(first.paths.rollouts, "utf8");
  const paths = first.paths;
  const tries: [Parameters<typeof evaluateIn>[1], RegExp][] = [
    [{ run: { resume: true, agentName: "nop", paths } }, /agent harbor_oracle.*nop/],
    [{ run: { resume: true, taskset: "other-set", paths } }, /dataset my-dataset.*other-set/],
    [{ run: { resume: true, paths }, tasks: tasksIn(folder, ["zeta"]) }, /another dataset called my-dataset/],
  ];
  for (const [given, message] of tries) {
    await assert.rejects(evaluateIn(folder, given), { code: "store.mismatch", message });
  }
  assert.equal(readFileSync(paths.rollouts, "utf8"), before);
});

test("resume runs a changed task again under its index, and its neighbours not", async () => {
  using folder = new TempFolder("changed");
  const tasks = tasksIn(folder, ["a", "b"]);
  await evaluateIn(folder, { tasks });
  const again = await evaluateIn(folder, { tasks, run: { resume: true }, digests: { b: "f".repeat(64) } });
  assert.deepEqual(again.provider.log.filter((line) => line.startsWith("open")), ["open 1-0"]);
  assert.match(told(again.events), /run again: b/);
  assert.equal(again.summary.counts.results, 2);
  assert.equal(again.rows.length, 3, "rows are never rewritten");
});

test("resume of a part keeps the indexes of the others", async () => {
  using folder = new TempFolder("part");
  await evaluateIn(folder, { tasks: tasksIn(folder, ["a", "b"]) });
  const part = await evaluateIn(folder, { tasks: tasksIn(folder, ["b", "c"]), run: { resume: true } });
  assert.deepEqual(part.provider.log.filter((line) => line.startsWith("open")), ["open 2-0"]);
  const whole = await evaluateIn(folder, { tasks: tasksIn(folder, ["a", "b", "c"]), run: { resume: true } });
  assert.deepEqual(whole.provider.log, []);
  assert.equal(whole.summary.counts.results, 3);
});

test("resume of a part keeps what a newer version wrote into the inputs of the others", async () => {
  using folder = new TempFolder("newer");
  const { paths } = await evaluateIn(folder, { tasks: tasksIn(folder, ["a", "b"]) });
  const inputs = readRows(paths.materialized);
  const a = inputs[0]!;
  a.newer = { at: "top" };
  a.task_id.newer = "inside";
  writeFileSync(paths.materialized, inputs.map((row) => JSON.stringify(row) + "\n").join(""));
  await evaluateIn(folder, { tasks: tasksIn(folder, ["b"]), run: { resume: true } });
  assert.deepEqual(readRows(paths.materialized)[0], a);
});

test("resume names a verdict without a reward as a row that we never wrote", async () => {
  using folder = new TempFolder("no-reward");
  const { paths, rows } = await evaluateIn(folder);
  writeFileSync(paths.rollouts, JSON.stringify({ ...rows[0], reward: "1" }) + "\n");
  await assert.rejects(evaluateIn(folder, { run: { resume: true } }), (error: HarborError) => {
    assert.equal(error.code, "store.corrupt");
    assert.match(error.message, /rollouts\.jsonl:1 is not a row we wrote/);
    return true;
  });
});

test("B13: an interrupted run cancels what runs, records none of it, and writes the summary", async () => {
  using folder = new TempFolder("b13");
  const abort = new AbortController();
  let solved = 0;
  const hang = { until: new Promise(() => {}) };
  const provider = new FakeProvider({
    answers: {
      oracle: () => {
        if (++solved <= 2) return {};
        setTimeout(() => abort.abort(aborted()), 20);
        return hang;
      },
    },
  });
  const run = await evaluateIn(folder, { provider, tasks: tasksIn(folder, NAMES), signal: abort.signal });
  assert.deepEqual([ids(run.rows), run.failures], [["a", "b"], []]);
  assert.deepEqual(run.summary.counts, { selected: 4, results: 2, masked: 0, failed: 0, missing: 2 });
  assert.equal(run.result.interrupted, true);
  assert.equal(run.provider.open_, 0, "every sandbox is gone");
  const resumed = await evaluateIn(folder, { tasks: tasksIn(folder, NAMES), run: { resume: true } });
  assert.deepEqual(ids(resumed.rows), NAMES);
  assert.deepEqual(resumed.rows.map((row) => row._ng_attempt_index), [0, 0, 0, 0]);
});

test("a results folder that cannot be made is named before anything runs", async () => {
  using folder = new TempFolder("unwritable");
  writeFileSync(folder.join("file"), "");
  const paths = runPaths({
    cwd: folder.path,
    taskset: "x",
    agentName: "harbor_oracle",
    validation: true,
    output: "file/out/r.jsonl",
  });
  const provider = new FakeProvider();
  await assert.rejects(evaluateIn(folder, { provider, run: { paths } }), (error) => {
    assert.ok(error instanceof HarborError);
    assert.deepEqual([error.code, /--output/.test(error.hint ?? "")], ["store.unwritable", true]);
    return true;
  });
  assert.deepEqual(provider.log, []);
});

test("A-7: episodes that wait too long for a slot fail at admission, and slots come free after cleanup", async () => {
  using folder = new TempFolder("a7");
  const slow = { until: new Promise((resolve) => setTimeout(resolve, 400)) };
  const { rows, failures, provider } = await evaluateIn(folder, {
    provider: new FakeProvider({ answers: { oracle: slow } }),
    tasks: tasksIn(folder, NAMES),
    run: {
      concurrency: 4,
      settings: episodeSettings({ max_concurrent_episodes: 2, queue_timeout_seconds: 0.1 }),
    },
  });
  assert.equal(rows.length, 2);
  assert.deepEqual(failures.map((row) => [row._ng_failure_stage, row._ng_failure_message, row._ng_failure_terminal]), [
    ["admission", "Episode admission timed out", false],
    ["admission", "Episode admission timed out", false],
  ]);
  assert.equal(provider.mostOpen, 2);
});

test("two runs into one folder: the second is refused and names the first", async () => {
  using folder = new TempFolder("lock");
  const slow = { until: new Promise((resolve) => setTimeout(resolve, 300)) };
  const first = evaluateIn(folder, { provider: new FakeProvider({ answers: { oracle: slow } }) });
  await new Promise((resolve) => setTimeout(resolve, 100));
  await assert.rejects(evaluateIn(folder), { code: "store.locked", message: /process \d+ on / });
  assert.equal((await first).rows.length, 1);
});

test("rows of a kind that says it was no attempt do not count as one", async () => {
  using folder = new TempFolder("marker");
  const tasks = tasksIn(folder, ["a"]);
  const failing = new FakeProvider({ openFails: new HarborError("sandbox.failed", "no") });
  const { paths, failures } = await evaluateIn(folder, { tasks, provider: failing });
  for (let copy = 0; copy < 5; copy++) {
    appendFileSync(paths.failures, JSON.stringify({ ...failures[0], _ng_dispatch_drained: true }) + "\n");
  }
  const { rows } = await evaluateIn(folder, { tasks, run: { resume: true } });
  assert.deepEqual(rows.map((row) => row._ng_attempt_index), [1]);
});
