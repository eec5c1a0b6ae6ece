import { test } from "node:test";
import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { parse, run } from "../../../cmd/dataset/prepare.ts";
import { HarborError } from "../../../lib/errors.ts";
import type { Runner } from "../../../lib/runtime/runner.ts";
import { testContext } from "../../support/context.ts";
import { madeImage, OddRegistry } from "../../support/odd_registry.ts";
import { TempFolder } from "../../support/tasks.ts";

/** A machine without git and without any engine. */
const nothing: Runner = {
  run: () => Promise.resolve({ ended: "exit", exitCode: 127, stdout: "", stderr: "not found", droppedBytes: 0 }),
  start: () => Promise.reject(new Error("nothing can be started here")),
};

async function prepare(folder: TempFolder, ...words: string[]) {
  const env = { TMPDIR: folder.path, PATH: "", HOME: folder.path };
  const { ctx, out, notes } = testContext({ cwd: folder.path, env, runner: nothing });
  const error = await run(parse(["data", "--sandbox", "podman", ...words]), ctx)
    .then((code) => code, (thrown: unknown) => thrown as HarborError);
  return { error, out, notes: notes.join("\n") };
}

const results = "results/harbor/data";
const read = (folder: TempFolder, file: string) => readFileSync(folder.join(results, file), "utf8");

test("dataset prepare on a machine without an engine asks registries, records, and asks nobody the second time", async () => {
  await using registry = await OddRegistry.start();
  using folder = new TempFolder("prepare");
  const image = madeImage();
  registry.hold("org/base", image, "1");
  for (const name of ["a", "b"]) {
    folder.task(`data/${name}`, {
      image: null,
      files: { "environment/Dockerfile": `FROM ${registry.host}/org/base:1\nENV A=1\n` },
    });
  }
  folder.task("data/named", { image: "mine:1" });
  const first = await prepare(folder);
  const pin = `${registry.host}/org/base@${image.digest}`;
  assert.deepEqual([first.error, first.out], [0, [`${pin}\tread\t2`, "mine:1\tprebuilt\t1"].sort()], first.notes);
  assert.deepEqual(JSON.parse(read(folder, "images.json")), [pin, "mine:1"].sort());
  assert.equal(read(folder, "skipped.json"), "{}\n");
  assert.equal(read(folder, "tasks_harbor_oracle.jsonl").trim().split("\n").length, 3);
  assert.match(read(folder, "run_config_harbor_oracle.yaml"), /image_records:\n.*compose-images\.json: [0-9a-f]{64}/);
  assert.match(first.notes, /Run config written to .*run_config_harbor_oracle\.yaml; 3 task\(s\) prepared$/);

  const asked = registry.seen.length;
  const second = await prepare(folder, "--json");
  assert.equal(registry.seen.length, asked);
  assert.deepEqual(second.out.map((line) => JSON.parse(line).how).sort(), ["prebuilt", "recorded"]);
});

test("E17: a registry that is asked too much stops prepare with every image named; what was read stays recorded", async () => {
  await using registry = await OddRegistry.start();
  await using other = await OddRegistry.start();
  using folder = new TempFolder("prepare");
  other.hold("good", madeImage(), "1");
  const limited = { status: 429, headers: { "retry-after": "3600" }, body: '{"errors":[{"code":"TOOMANYREQUESTS"}]}' };
  registry.odd = ({ path }) => (path.includes("/bad") ? limited : undefined);
  for (const name of ["good", "bad1", "bad2"]) {
    folder.task(`data/${name}`, {
      image: null,
      files: { "environment/Dockerfile": `FROM ${name === "good" ? other.host : registry.host}/${name}:1\nENV A=1\n` },
    });
  }
  const { error, out } = await prepare(folder);
  assert.ok(error instanceof HarborError && error.code === "image.failed", String(error));
  for (const name of ["bad1", "bad2"]) {
    assert.match(
      error.message,
      new RegExp(
        `^Could not record the configuration of base image ${registry.host}/${name}:1: registry returned HTTP 429 for `,
        "m",
      ),
    );
  }
  assert.match(error.hint ?? "", /docker login/);
  assert.deepEqual(out, []);
  assert.deepEqual(Object.keys(JSON.parse(read(folder, "skipped.json"))), ["bad1", "bad2"]);
  assert.equal(existsSync(folder.join(results, "run_config_harbor_oracle.yaml")), false, "the barrier is not passed");
  assert.match(readFileSync(folder.join("data", "compose-images.json"), "utf8"), /good@sha256/);
});

test("A13: an image that nobody has leaves out its own task; namespace has those of the others afterwards", async () => {
  await using registry = await OddRegistry.start();
  using folder = new TempFolder("prepare");
  registry.hold("good", madeImage(), "1");
  for (const name of ["gone", "good"]) folder.task(`data/${name}`, { image: `${registry.host}/${name}:1` });
  const { error, notes } = await prepare(folder, "--sandbox", "namespace", "--image-store", folder.join("store"));
  assert.equal(error, 1, String(error));
  assert.match(notes, /skipped: gone: Cannot pull .*\/gone:1: registry returned HTTP 404 .*1 task\(s\) prepared$/s);
  assert.deepEqual(Object.keys(JSON.parse(read(folder, "skipped.json"))), ["gone"]);
  assert.deepEqual(JSON.parse(read(folder, "images.json")), [`${registry.host}/good:1`]);
  assert.ok(existsSync(folder.join("store", "oci-layout")));
});

test("--offline asks nobody and names what is missing", async () => {
  await using registry = await OddRegistry.start();
  using folder = new TempFolder("prepare");
  folder.task("data/a", { image: null, files: { "environment/Dockerfile": `FROM ${registry.host}/x:1\nENV A=1\n` } });
  folder.task("data/b", { image: null, files: { "environment/Dockerfile": "FROM y:1\nCOPY Dockerfile /d\n" } });
  const { error } = await prepare(folder, "--offline");
  assert.ok(error instanceof HarborError && error.code === "image.missing", String(error));
  assert.match(
    error.message,
    /^Offline: 2 image\(s\) are missing: .*\/x:1, hb__[0-9a-f]{32}; run gym-harbor bundle import$/,
  );
  assert.equal(registry.seen.length, 0);
});

test("records that do not parse stop prepare by their name and stay as they are", async () => {
  using folder = new TempFolder("prepare");
  folder.task("data/a", { image: null, files: { "environment/Dockerfile": "FROM x:1\nENV A=1\n" } });
  writeFileSync(folder.join("data", "compose-images.json"), "{ half");
  const { error } = await prepare(folder);
  assert.ok(error instanceof HarborError && error.code === "store.corrupt", String(error));
  assert.match(error.message, /data\/compose-images\.json/);
  assert.equal(readFileSync(folder.join("data", "compose-images.json"), "utf8"), "{ half");
});

test("a machine without a builder is told what to install", async () => {
  using folder = new TempFolder("prepare");
  folder.task("data/a", { image: null, files: { "environment/Dockerfile": "FROM y:1\nCOPY Dockerfile /d\n" } });
  const { error } = await prepare(folder);
  assert.ok(error instanceof HarborError && error.code === "engine.missing", String(error));
  assert.match(error.message, /^No image builder found: install docker/);
});

test("host has no images: prepare says what there is to run and asks nobody", async () => {
  using folder = new TempFolder("prepare");
  folder.task("data/a", { image: null, files: { "environment/Dockerfile": "FROM x:1\nENV A=1\n" } });
  const { error, out } = await prepare(folder, "--sandbox", "host");
  assert.deepEqual([error, out], [0, []]);
  assert.equal(read(folder, "images.json"), "[]\n");
});
