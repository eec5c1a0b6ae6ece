/** Field cases I: rows that last, and what `--resume` runs again. On the host sandbox, which starts in milliseconds. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { appendFileSync, existsSync, readFileSync, truncateSync, writeFileSync } from "node:fs";
import { runCli } from "../support/cli.ts";
import { sandboxTest } from "../support/kit.ts";
import { IMAGE, type Row, rowOf, TempFolder, validate } from "../support/tasks.ts";

const HOST = ["--sandbox", "host"];
const ids = (rows: readonly Row[]): string[] => rows.map((row) => row._ng_task_id.task_id).sort();

/** A dataset of `names`, each of which leaves a line in a file of this machine... which it cannot: so rows are counted. */
function dataset(folder: TempFolder, names: readonly string[]): string {
  for (const name of names) folder.task(`data/${name}`, {});
  return folder.join("data");
}

sandboxTest("docker", "I1: a task that failed for want of its image runs again on resume, and only it", async () => {
  using folder = new TempFolder("i1");
  const absent = `gym-harbor-test-absent:${crypto.randomUUID().slice(0, 8)}`;
  folder.task("data/good", {});
  folder.task("data/lacks-image", { image: absent });
  const output = folder.join("out", "rollouts.jsonl");
  const first = await validate(folder.join("data"), output, ["--sandbox", "docker"]);
  assert.equal(first.code, 1, first.stderr);
  assert.deepEqual(ids(first.rows), ["good"]);
  const failure = rowOf(first.failures, "lacks-image");
  assert.ok(failure !== undefined, first.stderr);
  assert.match(failure._ng_failure_message, new RegExp(absent));
  assert.match(first.stdout, /^lacks-image\tfailed: /m);

  assert.equal(spawnSync("docker", ["tag", IMAGE, absent]).status, 0);
  try {
    const second = await validate(folder.join("data"), output, ["--sandbox", "docker", "--resume"]);
    assert.equal(second.code, 0, second.stderr);
    assert.deepEqual(ids(second.rows), ["good", "lacks-image"]);
    assert.equal(
      rowOf(second.rows, "good")!.response.id,
      rowOf(first.rows, "good")!.response.id,
      "good did not run again",
    );
    assert.equal(second.summary!.counts.failed, 0, JSON.stringify(second.summary!.counts));
  } finally {
    spawnSync("docker", ["rmi", absent]);
  }
});

for (
  const [what, cut] of [
    ["without its final newline", (path: string, size: number) => truncateSync(path, size - 1)],
    ["half written", (path: string, size: number) => truncateSync(path, size - 40)],
    ["begun by a byte", (path: string) => appendFileSync(path, "{")],
  ] as const
) {
  sandboxTest("host", `I2: a last row ${what} is dropped aloud and run again`, async () => {
    using folder = new TempFolder("i2");
    const data = dataset(folder, ["a", "b", "c"]);
    const output = folder.join("out", "rollouts.jsonl");
    await validate(data, output, [...HOST, "--concurrency", "1"]);
    cut(output, readFileSync(output).length);
    const resumed = await validate(data, output, [...HOST, "--resume"]);
    assert.equal(resumed.code, 0, resumed.stderr);
    assert.deepEqual(ids(resumed.rows), ["a", "b", "c"]);
    assert.match(resumed.stderr, /rollouts\.jsonl/, "the cut is told");
  });
}

sandboxTest(
  "host",
  "I2: a row in the middle that is no JSON is named by file and line, and nothing is rewritten",
  async () => {
    using folder = new TempFolder("i2m");
    const data = dataset(folder, ["a", "b"]);
    const output = folder.join("out", "rollouts.jsonl");
    await validate(data, output, HOST);
    const good = readFileSync(output, "utf8");
    const broken = `{"half\n${good}`;
    writeFileSync(output, broken);
    const { runCli } = await import("../support/cli.ts");
    const result = await runCli(["validate", data, "--output", output, ...HOST, "--resume"]);
    assert.notEqual(result.code, 0);
    assert.match(result.stderr, /store\.corrupt.*rollouts\.jsonl:1/s);
    assert.equal(readFileSync(output, "utf8"), broken);
  },
);

sandboxTest(
  "host",
  "resume runs nothing again where all is done, and a fresh start keeps the old rows as .bak",
  async () => {
    using folder = new TempFolder("fresh");
    const data = dataset(folder, ["a", "b"]);
    const output = folder.join("out", "rollouts.jsonl");
    const first = await validate(data, output, HOST);
    const resumed = await validate(data, output, [...HOST, "--resume"]);
    assert.equal(resumed.code, 0, resumed.stderr);
    assert.deepEqual(resumed.rows, first.rows);
    const fresh = await validate(data, output, HOST);
    assert.equal(fresh.code, 0, fresh.stderr);
    assert.match(fresh.stderr, /\.bak/);
    assert.ok(existsSync(`${output}.bak`));
    assert.equal(fresh.rows.length, 2);
  },
);

sandboxTest("host", "resume onto another dataset or agent is refused by name", async () => {
  using folder = new TempFolder("mismatch");
  const output = folder.join("out", "rollouts.jsonl");
  await validate(dataset(folder, ["a"]), output, HOST);
  folder.task("other/z", {});
  const before = readFileSync(output, "utf8");
  const other = await runCli(["validate", folder.join("other"), "--output", output, ...HOST, "--resume"]);
  assert.notEqual(other.code, 0, other.stderr);
  assert.match(other.stderr, /store\.mismatch/);
  assert.match(other.stderr, /other|data/);
  const agent = await runCli([
    "run",
    folder.join("data"),
    "--agent",
    "nop",
    "--output",
    output,
    ...HOST,
    "--resume",
  ]);
  assert.notEqual(agent.code, 0, agent.stderr);
  assert.match(agent.stderr, /harbor_oracle/);
  assert.match(agent.stderr, /nop/);
  assert.equal(readFileSync(output, "utf8"), before, "nothing was written");
});

sandboxTest("host", "a changed task runs again on resume; its neighbours do not", async () => {
  using folder = new TempFolder("changed");
  const data = dataset(folder, ["a", "b"]);
  const output = folder.join("out", "rollouts.jsonl");
  await validate(data, output, HOST);
  writeFileSync(folder.join("data", "b", "instruction.md"), "Do something else.\n");
  const result = await runCli(["validate", data, "--output", output, ...HOST, "--resume"]);
  // A dataset whose digest changed is another dataset: refused by name, or exactly b runs again. Never a silent keep.
  if (result.code === 0) assert.match(result.stderr, /\bb\b/);
  else assert.match(result.stderr, /store\.mismatch|digest/);
});

sandboxTest("host", "I7: times are UTC and durations never negative, whatever the time zone", async () => {
  using folder = new TempFolder("i7");
  const output = folder.join("out", "rollouts.jsonl");
  const began = Date.now();
  const run = await validate(dataset(folder, ["a"]), output, HOST, { env: { TZ: "America/New_York" } });
  assert.equal(run.code, 0, run.stderr);
  const stamps = JSON.stringify([run.rows, run.summary]).match(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[^"\\]*/g) ?? [];
  for (const stamp of stamps) {
    assert.match(stamp, /(Z|[+-]\d\d:\d\d)$/, stamp);
    assert.ok(Math.abs(Date.parse(stamp) - began) < 60_000, stamp);
  }
  assert.ok(run.rows[0]!.verifier_seconds >= 0);
});

sandboxTest("host", "B15: a limit starts with its phase, not with the wait for a slot", async () => {
  using folder = new TempFolder("b15");
  for (const name of ["a", "b", "c"]) {
    folder.task(`data/${name}`, { solve: "sleep 1.2", toml: "[agent]\ntimeout_sec = 2" });
  }
  const run = await validate(folder.join("data"), folder.join("out", "rollouts.jsonl"), [
    ...HOST,
    "--concurrency",
    "1",
  ]);
  assert.equal(run.code, 0, run.stderr);
  assert.deepEqual(run.rows.map((row) => row.agent_timed_out ?? false), [false, false, false]);
});

sandboxTest("host", "--num-repeats gives one row per repeat and names them in the table", async () => {
  using folder = new TempFolder("repeat");
  const run = await validate(dataset(folder, ["a", "b"]), folder.join("out", "rollouts.jsonl"), [
    ...HOST,
    "--num-repeats",
    "3",
  ]);
  assert.equal(run.code, 0, run.stderr);
  const pairs = run.rows.map((row) => `${row._ng_task_index}-${row._ng_rollout_index}`).sort();
  assert.deepEqual(pairs, ["0-0", "0-1", "0-2", "1-0", "1-1", "1-2"]);
  assert.equal(run.table.length, 6, run.stdout);
  assert.match(run.stdout, /^a#\d\t/m);
});

sandboxTest("docker", "A13: an image that is not there fails its task alone and is never counted as 0", async () => {
  using folder = new TempFolder("a13");
  folder.task("data/a", {});
  folder.task("data/b", { image: "gym-harbor-test-absent:none" });
  folder.task("data/c", { test: "echo 0 > /logs/verifier/reward.txt" });
  const run = await validate(folder.join("data"), folder.join("out", "rollouts.jsonl"), ["--sandbox", "docker"]);
  assert.equal(run.code, 1, run.stderr);
  assert.deepEqual(ids(run.rows), ["a", "c"]);
  assert.deepEqual(ids(run.failures), ["b"]);
  assert.equal("reward" in run.failures[0]!, false);
  assert.equal(run.summary!.counts.failed, 1);
  assert.equal(run.summary!.counts.results, 2);
  assert.match(run.stderr, /Cannot pull gym-harbor-test-absent:none: /);
});

sandboxTest("docker", "A11: a run in which nothing was scored says so and is whole", async () => {
  using folder = new TempFolder("a11");
  for (const name of ["a", "b"]) folder.task(`data/${name}`, { image: "gym-harbor-test-absent:none" });
  const run = await validate(folder.join("data"), folder.join("out", "rollouts.jsonl"), ["--sandbox", "docker"]);
  assert.equal(run.code, 1, run.stderr);
  assert.deepEqual(run.rows, []);
  assert.equal(run.failures.length, 2);
  assert.deepEqual([run.summary!.counts.results, run.summary!.counts.failed], [0, 2]);
  assert.match(run.stderr, /None of the 2 dispatched rollouts produced a result/);
});

for (const sandbox of ["docker", "podman"] as const) {
  sandboxTest(sandbox, "B21: a build past its limit is ended and leaves nothing", async () => {
    using folder = new TempFolder("b21");
    const mark = `sleep 36${Math.floor(Math.random() * 1e6)}`;
    const task = folder.task("stalls", {
      image: null,
      environment: "build_timeout_sec = 4",
      files: { "environment/Dockerfile": `FROM ${IMAGE}\nRUN ${mark}\n` },
    });
    const run = await validate(task, folder.join("out", "rollouts.jsonl"), ["--sandbox", sandbox]);
    assert.equal(run.code, 1, run.stderr);
    assert.ok(run.ms < 60_000, `took ${run.ms} ms`);
    assert.match(run.failures[0]?._ng_failure_message ?? "", /build/i, run.stderr);
    assert.match(run.failures[0]?._ng_failure_message ?? "", /4 s|4s|4\.0|timeout|limit/i, run.stderr);
    const left = spawnSync("pgrep", ["-f", mark], { encoding: "utf8" });
    assert.equal(left.stdout.trim(), "", "the build still runs");
  });
}
