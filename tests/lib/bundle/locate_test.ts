import assert from "node:assert/strict";
import { cpSync, mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { imagesOf } from "../../../lib/bundle/locate.ts";
import { digestTarget } from "../../../lib/dataset/digest.ts";
import { readInput } from "../../../lib/dataset/input.ts";
import { resolveTarget, type Target } from "../../../lib/target/resolve.ts";
import { BUILT, BundleWork, PIN } from "../../support/bundles.ts";
import { never } from "../../support/images.ts";
import { TempFolder } from "../../support/tasks.ts";

/** What rows say of a target's tasks. */
async function identity(target: Target): Promise<Record<string, string>> {
  const input = await readInput(target, {}, {}, never);
  return {
    dataset: input.digests.dataset_digest,
    ...Object.fromEntries(input.tasks.map(({ task, digest }) => [task.id, digest])),
  };
}

test("a bundle is a target: its dataset, under its own name, with the digests it had", async () => {
  using work = await BundleWork.make();
  await work.export("out");
  const target = resolveTarget("out", work.temp.path);
  assert.equal(target.kind, "dataset");
  assert.equal(target.taskset, "words");
  assert.equal(target.named, "out/dataset/words");
  assert.equal(target.folder, work.temp.join("out/dataset/words"));
  assert.deepEqual(await identity(target), await identity(resolveTarget(work.data, "/")));
});

test("a bundle of some tasks has the digest of the whole dataset, by run and by digest", async () => {
  using work = await BundleWork.make();
  await work.export("part", (request) => {
    const [left] = request.tasks.splice(0, 1);
    request.dataset.leftOut.push(left!.folderDigest!);
  });
  const { alpha: _, ...wanted } = await identity(resolveTarget(work.data, "/"));
  assert.deepEqual(await identity(resolveTarget("part", work.temp.path)), wanted);
  const lines = await Array.fromAsync(digestTarget(resolveTarget("part", work.temp.path), { signal: never }));
  const last = lines.at(-1)!;
  assert.equal("dataset_digest" in last && last.dataset_digest, wanted.dataset);
});

test("a task that is changed inside a bundle changes the dataset's digest", async () => {
  using work = await BundleWork.make();
  await work.export("out");
  writeFileSync(work.temp.join("out/dataset/words/beta/instruction.md"), "else");
  const [before, now] = [
    await identity(resolveTarget(work.data, "/")),
    await identity(resolveTarget("out", work.temp.path)),
  ];
  assert.notEqual(now.dataset, before.dataset);
  assert.notEqual(now.beta, before.beta);
  assert.equal(now.alpha, before.alpha);
});

test("a task that differs from what was exported is a warning with both digests; a stranger among them is one too", async () => {
  using work = await BundleWork.make();
  await work.export("out");
  const warnings = async () => {
    const input = await readInput(resolveTarget("out", work.temp.path), {}, {}, never);
    return input.warnings.filter(({ finding }) => finding.code === "bundle.changed")
      .map(({ task, finding }) => `${task}: ${finding.message}`);
  };
  assert.deepEqual(await warnings(), []);
  const { folder_digest } = resolveTarget("out", work.temp.path).bundle!.index.tasks.beta!;
  writeFileSync(work.temp.join("out/dataset/words/beta/tests/test.sh"), "exit 0\n");
  cpSync(work.temp.join("out/dataset/words/alpha"), work.temp.join("out/dataset/words/omega"), { recursive: true });
  const [beta, omega, ...rest] = await warnings();
  assert.match(
    beta!,
    new RegExp(`^beta: its files .* folder digest is [0-9a-f]{64}, the bundle says ${folder_digest}$`),
  );
  assert.deepEqual([omega, rest], ["omega: it is not of the bundle that it lies in", []]);
});

test("folders inside a bundle know it: the dataset and each task", async () => {
  using work = await BundleWork.make();
  await work.export("out");
  const inside = {
    "out/dataset/words": "dataset",
    "out/dataset/words/beta": "task",
    "out/dataset/words/deep/gamma": "task",
  };
  for (const [path, kind] of Object.entries(inside)) {
    const target = resolveTarget(path, work.temp.path);
    assert.equal(target.kind, kind);
    assert.equal(target.bundle?.folder, work.temp.join("out"), path);
  }
  assert.equal(resolveTarget("words", work.temp.path).bundle, undefined);
  assert.equal(resolveTarget("out/images", work.temp.path).bundle, undefined);
});

test("one task, exported by its own name, is a task again with its parent's settings", async () => {
  using work = await BundleWork.make();
  writeFileSync(join(work.data, "dataset.toml"), "[gym.defaults]\ntimeout_multiplier = 2.0\n");
  const single = resolveTarget(join(work.data, "beta"), "/");
  const input = await readInput(single, {}, {}, never);
  await work.export("one", (request) => {
    request.dataset = { ...request.dataset, kind: "task", taskset: "beta", digests: input.digests, leftOut: [] };
    request.tasks = request.tasks.filter(({ id }) => id === "beta");
  });
  const target = resolveTarget("one", work.temp.path);
  assert.equal(target.kind, "task");
  assert.equal(target.taskset, "beta");
  assert.deepEqual(await identity(target), await identity(single));
  assert.deepEqual(await work.faults("one"), []);
});

test("half a bundle is refused as a target; a dataset with a file bundle.json is none", async () => {
  using work = await BundleWork.make();
  await work.export("out");
  rmSync(work.temp.join("out/SHA256SUMS"));
  assert.throws(() => resolveTarget("out", work.temp.path), /half a bundle/);
  renameSync(work.temp.join("out/bundle.json"), work.temp.join("out/EXPORT-UNFINISHED.json"));
  assert.throws(() => resolveTarget("out", work.temp.path), /half a bundle: its export did not finish/);
  using temp = new TempFolder("own");
  temp.task("data/one", { files: {} });
  writeFileSync(temp.join("data/bundle.json"), "{}");
  assert.equal(resolveTarget("data", temp.path).kind, "dataset");
  mkdirSync(temp.join("data/dataset"));
  cpSync(temp.join("data/one"), temp.join("task"), { recursive: true });
  mkdirSync(temp.join("task/dataset"));
  writeFileSync(temp.join("task/bundle.json"), "{}");
  assert.equal(resolveTarget("task", temp.path).kind, "task");
});

test("imagesOf() takes every spelling of a reference", async () => {
  using work = await BundleWork.make();
  const find = imagesOf(await work.export("out"));
  for (
    const reference of [
      "debian:12",
      "docker.io/library/debian:12",
      PIN,
      `docker.io/${PIN}`,
      BUILT,
      `localhost/${BUILT}`,
    ]
  ) {
    assert.ok(find(reference) !== undefined, reference);
  }
  assert.equal(find("debian:11"), undefined);
});
