import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { test } from "node:test";
import * as contextHash from "../../cmd/context_hash.ts";
import { parse, run } from "../../cmd/digest.ts";
import { hashTask } from "../../lib/digest/task.ts";
import { testContext } from "../support/context.ts";
import { type Files, TempFolder, writeFiles } from "../support/tasks.ts";

const TASK: Files = { "task.toml": "", "instruction.md": "x", "tests/test.sh": "t", "solution/solve.sh": "s" };

const below = (folder: string, files: Files): Files =>
  Object.fromEntries(Object.entries(files).map(([path, spec]) => [`${folder}/${path}`, spec]));

async function digest(files: Files, ...paths: string[]) {
  using temp = new TempFolder();
  writeFiles(temp.path, files);
  const before = readdirSync(temp.path, { recursive: true });
  const { ctx, out, notes } = testContext({ cwd: temp.path });
  const exit = await run(parse([...paths, "--json"]), ctx);
  assert.deepEqual(readdirSync(temp.path, { recursive: true }), before, "digest writes nothing");
  return { exit, lines: out.map((line) => JSON.parse(line)), notes };
}

function own(files: Files) {
  using temp = new TempFolder();
  writeFiles(temp.path, files);
  return hashTask(temp.path, { dirhash: true });
}

test("digest --json gives a line a task and a last one for the dataset", async () => {
  const { exit, lines, notes } = await digest({ ...below("set/b", TASK), ...below("set/deep/a", TASK) }, "set");
  const { problems: _, ...hashes } = own(TASK);
  const { task_digest, package_hash, context_hash, dirhash } = hashes;
  const digests = { task_digest, effective_digest: task_digest, package_hash, context_hash, dirhash };
  assert.deepEqual(lines.slice(0, 2), [{ path: "set/b", ...digests }, { path: "set/deep/a", ...digests }]);
  assert.deepEqual(Object.keys(lines[0]), ["path", ...Object.keys(digests)]);
  assert.deepEqual(Object.keys(lines[2]), ["path", "dataset_digest", "tasks"]);
  assert.equal(lines[2].tasks, 2);
  assert.equal(exit, 0);
  assert.deepEqual(notes, []);
});

test("digest of a single task gives one line, under its dataset's settings", async () => {
  const files = { ...below("set/a", TASK), "set/dataset.toml": "[gym.defaults]\ntimeout_multiplier = 2\n" };
  const { lines } = await digest(files, "set/a");
  assert.equal(lines.length, 1);
  assert.equal(lines[0].task_digest, own(TASK).task_digest);
  assert.notEqual(lines[0].effective_digest, lines[0].task_digest);
});

const effective = async (toml: string, more: Files = {}, task: Files = TASK): Promise<string> =>
  (await digest({ ...below("set/a", task), "set/dataset.toml": toml, ...more }, "set/a")).lines[0].effective_digest;

test("digest: multipliers, an override and a grading verifier.py change the effective digest, num_repeats does not", async () => {
  const { "tests/test.sh": _, ...bare } = TASK;
  const plain = own(TASK).task_digest;
  assert.equal(await effective("[gym.defaults]\nnum_repeats = 3\n"), plain);
  assert.equal(await effective("[gym.defaults]\ntimeout_multiplier = 1.0\n"), plain);
  assert.notEqual(await effective("[gym.defaults]\nresource_multiplier = 2\n"), plain);
  assert.notEqual(await effective("[gym.tasks.a.environment]\ncpus = 2\n"), plain);
  assert.equal(await effective("", { "set/verifier.py": "v" }), plain, "the task has a grader of its own");
  assert.notEqual(await effective("", { "set/verifier.py": "v" }, bare), own(bare).task_digest);
});

test("digest takes the image that names an empty context from task.toml, overridden by dataset.toml", async () => {
  const task = { ...TASK, "task.toml": '[environment]\ndocker_image = "org/img:1"\n' };
  assert.equal((await digest(below("a", task), "a")).lines[0].context_hash, "ce84fa238c68e63d39420da746f1ab51");
  const dataset = '[gym.tasks.a.environment]\ndocker_image = "org/img:1"\n';
  const { lines } = await digest({ ...below("a", TASK), "dataset.toml": dataset }, "a");
  assert.equal(lines[0].context_hash, "ce84fa238c68e63d39420da746f1ab51");
});

test("digest gives what can be computed of a task that does not load", async () => {
  const { exit, lines } = await digest(below("set/a", { ...TASK, "task.toml": "no toml" }), "set/a");
  assert.ok(lines[0].task_digest && lines[0].package_hash && lines[0].context_hash && lines[0].dirhash);
  assert.equal(exit, 0);
});

test("digest says which digest is missing and why, and exits 1", async () => {
  const files = { ...below("set/a", TASK), ...below("set/b", { ...TASK, "tests/x": { symlink: "/etc/passwd" } }) };
  const { exit, lines, notes } = await digest(files, "set");
  assert.equal(exit, 1);
  assert.equal(lines[1].task_digest, null);
  assert.equal(lines[1].effective_digest, null);
  assert.equal(lines[1].problems[0].digest, "task_digest");
  assert.equal(lines[2].dataset_digest, null);
  assert.match(
    notes[0]!,
    /set\/b has no task_digest, package_hash, dirhash: Task file escapes the task folder: tests\/x/,
  );
});

test("digest names a dataset.toml that is refused, and gives the rest", async () => {
  const { exit, lines, notes } = await digest({ ...below("set/a", TASK), "set/dataset.toml": "[gym\n" }, "set");
  assert.equal(exit, 1);
  assert.ok(lines[0].task_digest);
  assert.equal(lines[0].effective_digest, null);
  assert.ok(lines[1].dataset_digest && lines[1].dataset_toml_digest);
  assert.match(notes.join("\n"), /dataset\.toml/);
});

test("digest has no digest for a dataset of no tasks", async () => {
  const { exit, lines, notes } = await digest({ "set/notes.txt": "" }, "set");
  assert.equal(exit, 1);
  assert.deepEqual([lines.length, lines[0].dataset_digest, lines[0].tasks], [1, null, 0]);
  assert.match(notes[0]!, /^error\[task\.invalid\]: set has no dataset_digest: /);
});

test("digest refuses a wrong path before it prints anything", async () => {
  await assert.rejects(digest(below("a", TASK), "a", "none"), { code: "target.missing" });
});

test("digest prints digest and path for people", async () => {
  using temp = new TempFolder();
  writeFiles(temp.path, below("set/a", TASK));
  const { ctx, out } = testContext({ cwd: temp.path });
  assert.equal(await run(parse(["set"]), ctx), 0);
  assert.equal(out[0], `${own(TASK).task_digest}  set/a`);
  assert.match(out[1]!, /^[0-9a-f]{64} {2}set {2}\(dataset of 1\)$/);
});

test("context-hash, which digest starts beside itself, prints what digest prints", async () => {
  using temp = new TempFolder();
  writeFiles(temp.path, below("environment", { Dockerfile: "FROM x", "sub/f": "1" }));
  const { ctx, out } = testContext({ cwd: temp.path });
  assert.equal(await contextHash.run(contextHash.parse([temp.join("environment")]), ctx), 0);
  assert.deepEqual(out, [hashTask(temp.path).context_hash]);
  assert.throws(() => contextHash.parse([]), { code: "usage" });
});
