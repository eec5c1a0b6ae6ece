import { test } from "node:test";
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, symlinkSync } from "node:fs";
import { dirname } from "node:path";
import { openDataset } from "../../../lib/dataset/load.ts";
import { resolveTarget } from "../../../lib/target/resolve.ts";
import type { Task } from "../../../lib/task/task.ts";
import { type Files, writeTree } from "../../support/tree.ts";

const task = (id: string, toml = '[environment]\ndocker_image = "busybox:1.36"\n'): Files => ({
  [`${id}/task.toml`]: toml,
  [`${id}/instruction.md`]: "x\n",
  [`${id}/tests/test.sh`]: "true\n",
});

function tasksOf(files: Files, named = "."): Task[] {
  using tree = writeTree(files, "set");
  const dataset = openDataset(resolveTarget(named, tree.path));
  assert.deepEqual(dataset.errors, []);
  return [...dataset.tasks()].map((one) => {
    assert.deepEqual(one.errors, []);
    return one.task!;
  });
}

test("openDataset() finds tasks down to six levels, siblings in code-point order, hidden folders left out", () => {
  const tasks = tasksOf({
    ...task("b"),
    ...task("a-b"),
    ...task("a/x"),
    ...task("B"),
    ...task("é"),
    ...task(".hidden/h"),
    ...task("1/2/3/4/5/six"),
    ...task("1/2/3/4/5/6/seven"),
    ...task("b/inner"),
    "notes/readme.md": "x",
  });
  assert.deepEqual(tasks.map((one) => one.relativePath), ["1/2/3/4/5/six", "B", "a/x", "a-b", "b", "é"]);
});

test("openDataset() of a single task reads the dataset.toml beside it, other tasks' overrides included", () => {
  const dataset: Files = {
    ...task("one"),
    ...task("two"),
    "dataset.toml": "[gym.defaults]\ntimeout_multiplier = 2\n[gym.tasks.two.verifier]\ntimeout_sec = 5\n",
  };
  const [one] = tasksOf(dataset, "one");
  assert.equal(one!.verifier.timeout_sec, 1200);
  assert.equal(one!.relativePath, "one");
});

test("an override merges env, replaces the rest, then multipliers scale and round up", () => {
  const [one] = tasksOf({
    ...task(
      "one",
      '[agent]\ntimeout_sec = 10\n[verifier]\ntimeout_sec = 10\nenv = { A = "1" }\n[[verifier.collect]]\ncommand = "x"\ntimeout_sec = 10\n[environment]\ndocker_image = "a"\ncpus = 0.5\nmemory_mb = 10\nstorage_mb = 3\ngpus = 1\nenv = { A = "1", B = "1" }\n[environment.healthcheck]\ncommand = "x"\n',
    ),
    "dataset.toml":
      '[gym.defaults]\ntimeout_multiplier = 1.5\nresource_multiplier = 1.1\n[gym.tasks.one.environment]\ndocker_image = "b"\ncpus = 3\nenv = { B = "2", C = "2" }\n[gym.tasks.one.verifier]\ntimeout_sec = 20\nuser = 5\nenv = { B = "2" }\n',
  });
  const { environment, verifier, agent } = one!;
  assert.deepEqual(environment.env, { A: "1", B: "2", C: "2" });
  assert.deepEqual([
    environment.docker_image,
    environment.cpus,
    environment.memory_mb,
    environment.storage_mb,
    environment.gpus,
  ], ["b", 4, 11, 4, 1]);
  assert.deepEqual([
    agent.timeout_sec,
    verifier.timeout_sec,
    verifier.collect[0]!.timeout_sec,
    environment.healthcheck!.timeout_sec,
  ], [15, 30, 10, 30]);
  assert.deepEqual([verifier.user, verifier.env], ["5", { A: "1", B: "2" }]);
});

test("a verifier override does not reach a multi-step task's steps, multipliers do", () => {
  const [one] = tasksOf({
    ...task("one", '[environment]\ndocker_image = "a"\n[[steps]]\nname = "s"\n'),
    "one/steps/s/instruction.md": "x",
    "dataset.toml": "[gym.defaults]\ntimeout_multiplier = 2\n[gym.tasks.one.verifier]\ntimeout_sec = 5\n",
  });
  assert.equal(one!.steps[0]!.verifier.timeout_sec, 1200);
  assert.equal(one!.verifier.timeout_sec, 1200);
});

test("verifier inputs arrive, and are remarked upon where there is no sidecar", () => {
  using tree = writeTree(
    { ...task("one"), "dataset.toml": '[gym.tasks.one.verifier]\ninputs = ["actions.jsonl"]\n' },
    "set",
  );
  const [one] = [...openDataset(resolveTarget(tree.path, "/")).tasks()];
  assert.deepEqual(one!.task!.verifier.inputs, ["actions.jsonl"]);
  assert.deepEqual(one!.warnings.map((warning) => warning.code), ["dataset.inputs-without-compose"]);
});

test("a dataset.toml that refuses fails every task with its text, --strict does not read it", () => {
  using tree = writeTree({ ...task("a"), ...task("b"), "dataset.toml": "[gym]\nlicence = 1\n" }, "set");
  const dataset = openDataset(resolveTarget("set", dirname(tree.path)));
  assert.match(dataset.errors[0]!.message, /set\/dataset\.toml \[gym\]: unknown key `licence`/);
  assert.deepEqual([...dataset.tasks()].map((one) => one.errors.map((error) => error.code)), [["dataset.gym"], [
    "dataset.gym",
  ]]);
  const strict = openDataset(resolveTarget("set", dirname(tree.path)), { strict: true });
  assert.deepEqual([strict.errors, [...strict.tasks()].filter((one) => one.task === null)], [[], []]);
});

test("a linked task folder is refused by name, --strict takes it; other links are remarked upon", () => {
  using tree = writeTree({ ...task("real/one"), "set/x": "" }, "top");
  symlinkSync("../real/one", tree.at("set/linked"));
  symlinkSync("../real", tree.at("set/folder"));
  mkdirSync(tree.at("set/empty"));
  const target = resolveTarget("set", tree.path);
  const dataset = openDataset(target);
  assert.deepEqual(dataset.warnings.map((one) => one.message), [
    "set/folder is a symbolic link and is not searched for tasks",
  ]);
  assert.deepEqual([...dataset.tasks()].map((one) => [one.id, one.errors.map((error) => error.code)]), [["linked", [
    "task.symlink",
  ]]]);
  assert.deepEqual([...openDataset(target, { strict: true }).tasks()].map((one) => one.errors), [[]]);
});

test("links that go round in a circle below a dataset are no tasks and no crash", () => {
  using tree = writeTree(task("one"), "set");
  symlinkSync("loop", tree.at("loop"));
  symlinkSync(".", tree.at("self"));
  const dataset = openDataset(resolveTarget(tree.path, "/"));
  assert.deepEqual(dataset.ids, ["one"]);
});

test("tasks() loads only what is selected, lazily", () => {
  using tree = writeTree({ ...task("a"), ...task("b"), ...task("c") }, "set");
  const dataset = openDataset(resolveTarget(tree.path, "/"));
  assert.deepEqual([...dataset.tasks({ only: ["[ab]"], exclude: ["a"] })].map((one) => one.id), ["b"]);
  assert.throws(() => dataset.tasks({ only: ["x"] }).next(), /--only-tasks 'x' matches no task of 3/);
});

test("D17: a digest in [[tasks]] that is not the folder's is a note; other tables are nobody's business", () => {
  const named = '[task]\nname = "o/a"\n[environment]\ndocker_image = "busybox:1.36"\n';
  using tree = writeTree({
    ...task("a", named),
    "dataset.toml":
      '[dataset]\nname = "o/n"\nanything = 1\n[[tasks]]\nname = "o/a"\ndigest = "sha256:00112233445566"\n[[tasks]]\nname = "o/b"\n[metadata]\nx = 1\n',
  }, "set");
  const dataset = openDataset(resolveTarget(tree.path, "/"));
  const [one] = [...dataset.tasks()];
  assert.deepEqual([dataset.errors, one!.errors], [[], []]);
  assert.match(one!.warnings[0]!.message, /lists o\/a with digest 001122334455…, the folder has [0-9a-f]{12}…/);
});

test("D10: tasks below [dataset] beside real task folders are remarked upon", () => {
  using tree = writeTree({ ...task("a"), "dataset.toml": '[dataset]\nname = "o/n"\ntasks = ["a"]\n' }, "set");
  const dataset = openDataset(resolveTarget(tree.path, "/"));
  assert.deepEqual([dataset.errors, dataset.warnings.map((one) => one.code)], [[], [
    "dataset.misplaced-tasks-ignored",
  ]]);
});

test("folders and files whose names are not UTF-8 are named, and the rest loads", () => {
  using tree = writeTree({ ...task("ok"), ...task("odd") }, "set");
  // No runtime here can write such names itself.
  const made = spawnSync("sh", ["-c", `mkdir "$(printf 'bad\\377')" && echo x > "odd/tests/$(printf 'bad\\377')"`], {
    cwd: tree.path,
  });
  assert.equal(made.status, 0);
  const dataset = openDataset(resolveTarget(tree.path, "/"));
  assert.deepEqual(dataset.errors.map((one) => one.code), ["folder.name"]);
  assert.deepEqual([...dataset.tasks()].map((one) => [one.id, one.errors.map((error) => error.code)]), [["odd", [
    "folder.unreadable",
  ]], ["ok", []]]);
});
