import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { evaluateTarget, type Request } from "../../cmd/_evaluate.ts";
import { RunOptions } from "../../cmd/_run_options.ts";
import { agentNamed } from "../../lib/agent/mod.ts";
import { runExit, validateExit } from "../../lib/report/exit.ts";
import { systemClock } from "../../lib/runtime/clock.ts";
import type { Runner } from "../../lib/runtime/runner.ts";
import { testContext } from "../support/context.ts";
import { type Answers, FakeProvider } from "../support/fake_provider.ts";
import { TempFolder } from "../support/tasks.ts";

/** git is asked who keeps the dataset folder; here nobody does. */
const noGit: Runner = {
  run: () => Promise.resolve({ ended: "exit", exitCode: 128, stdout: "", stderr: "", droppedBytes: 0 }),
  start: () => Promise.reject(new Error("nothing is started here")),
};

/** Runs `validate`, or `run` with `agent`, over the fake provider, in `folder`. */
async function command(folder: TempFolder, options: Record<string, unknown>, agent?: string, answers?: Answers) {
  const test = testContext({ cwd: folder.path, env: { TMPDIR: folder.path }, runner: noGit });
  const request: Request = {
    command: agent === undefined ? "gym dataset validate" : "gym eval run",
    options: RunOptions.parse({ target: "data", ...options }),
    agent: agentNamed(agent ?? "harbor_oracle", systemClock),
    skipUnloadable: agent === undefined || options.skipUnloadable === true,
    exitOf: agent === undefined ? validateExit : runExit,
  };
  const provider = new FakeProvider({ answers });
  const code = await evaluateTarget(request, test.ctx, () => provider);
  return { code, provider, out: test.out, notes: test.notes.join("\n") };
}

const results = "results/harbor/validation/data";

test("validate: a dataset becomes a table on stdout, notes on stderr and files below results/", async () => {
  using folder = new TempFolder("validate");
  for (const name of ["b", "a"]) folder.task(`data/${name}`, {});
  const { code, out, notes } = await command(folder, {});
  assert.equal(code, 0, notes);
  assert.deepEqual(out, ["task_id\tstatus\treward", "a\toracle solved\t1", "b\toracle solved\t1"]);
  assert.match(notes, /Run config written to .*run_config_harbor_oracle\.yaml; validating 2 task\(s\) with the oracle/);
  assert.match(notes, /2 scored 1 or more[^]*files: results\/harbor\/validation\/data$/);
  assert.ok(existsSync(folder.join(results, "rollouts.jsonl")));
  assert.match(readFileSync(folder.join(results, "run_config_harbor_oracle.yaml"), "utf8"), /tasksets:\n {2}data:/);
  assert.match(readFileSync(folder.join("data", "manifest.toml"), "utf8"), /source = "local"/);
});

test("validate: what does not load is a line, and the exit says no", async () => {
  using folder = new TempFolder("broken");
  folder.task("data/good", {});
  folder.task("data/broken", { files: { "task.toml": "broken = \n" } });
  const { code, out } = await command(folder, {});
  assert.equal(code, 1);
  assert.match(out[1]!, /^broken\tskipped: .*task\.toml.*\t-$/);
  assert.equal(out[2], "good\toracle solved\t1");
});

test("D15: run refuses a dataset with a broken task by name, unless --skip-unloadable", async () => {
  using folder = new TempFolder("d15");
  folder.task("data/good", {});
  folder.task("data/broken", { files: { "task.toml": "broken = \n" } });
  await assert.rejects(command(folder, {}, "nop"), {
    code: "task.invalid",
    message: /1 task\(s\) could not load \(see .*skipped\.json\); first: broken: /,
    hint: "Use --skip-unloadable to explicitly run only the loadable subset.",
  });
  assert.match(readFileSync(folder.join("results/harbor/data/skipped.json"), "utf8"), /"broken"/);
  const { code, out } = await command(folder, { skipUnloadable: true }, "nop");
  assert.equal(code, 0);
  assert.equal(out[2], "good\tscored\t1");
});

test("run: an agent that the dataset does not admit is refused, the oracle never", async () => {
  using folder = new TempFolder("pairing");
  folder.task("data/a", { files: { "../dataset.toml": '[gym]\nallowed_agents = ["simple_agent"]\n' } });
  await assert.rejects(command(folder, {}, "nop"), {
    code: "task.unsupported",
    message: /allowed_agents admits simple_agent, not nop/,
  });
  assert.equal((await command(folder, { allowUnsupportedPairing: true }, "nop")).code, 0);
  assert.equal((await command(folder, {}, "harbor_oracle")).code, 0);
});

test("validate: overrides reach the episode, and one without effect is said", async () => {
  using folder = new TempFolder("overrides");
  folder.task("data/a", {});
  const { provider, notes } = await command(folder, {
    overrides: ["harbor_environment_server.sandbox_env.LANG=C", "gym.defaults.timeout_multiplier=2", "++run.other=x"],
  });
  assert.equal(provider.specs[0]!.env.LANG, "C");
  assert.equal(provider.commands.at(-1)!.deadlineMs, 1_200_000);
  assert.match(notes, /warning: run\.other has no effect in this version/);
});

test("validate --json prints a value per line and no table", async () => {
  using folder = new TempFolder("json");
  folder.task("data/a", {});
  const { out } = await command(folder, { json: true, quiet: true });
  assert.equal(out.length, 1);
  assert.deepEqual(JSON.parse(out[0]!).status, "scored");
});

test("validate --quiet says nothing on stderr when all is well", async () => {
  using folder = new TempFolder("quiet");
  folder.task("data/a", {});
  assert.equal((await command(folder, { quiet: true })).notes, "");
});

test("validate: a failed task is told with the last words of its tests, and nothing of ours is left behind", async () => {
  using folder = new TempFolder("failed");
  folder.task("data/a", {});
  const answers = { verifier: { files: { "test-stdout.txt": "assertion failed: 1 != 2\n" } } };
  const { code, notes } = await command(folder, {}, undefined, answers);
  assert.equal(code, 1);
  assert.match(notes, /a: reward 0 \(harbor:missing_reward: the verifier wrote no reward\)/);
  assert.match(notes, / {2}\| assertion failed: 1 != 2\n {2}results\/.*test-stdout\.txt/);
  assert.deepEqual(existsSync(folder.join("gym-harbor-0")), false);
});

test("validate names a wrong sandbox before it reads anything", async () => {
  using folder = new TempFolder("sandbox");
  await assert.rejects(command(folder, { sandbox: "dokcer" }), { code: "usage" });
});
