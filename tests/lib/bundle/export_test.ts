import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { chmodSync, existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { exportBundle } from "../../../lib/bundle/export.ts";
import { readBundle } from "../../../lib/bundle/schema.ts";
import { HarborError } from "../../../lib/errors.ts";
import { BASE, BUILT, BundleWork, OTHER, PIN } from "../../support/bundles.ts";
import { bytesOf, makeImage, never, putImage, testStore } from "../../support/images.ts";

/** Every path below a folder with its kind, mode and content: equal texts are equal trees. */
function treeText(folder: string): string {
  const script =
    `find . -printf '%y %m %p %l\\n' | LC_ALL=C sort; find . -type f -exec sha256sum {} + | LC_ALL=C sort -k2`;
  return execFileSync("bash", ["-c", script], { cwd: folder, encoding: "utf8" });
}

test("an export holds the dataset byte for byte, its images once, and sums that sha256sum confirms", async () => {
  using work = await BundleWork.make();
  const bundle = await work.export("out");
  const out = work.temp.join("out");
  execFileSync("sha256sum", ["-c", "--strict", "--quiet", "SHA256SUMS"], { cwd: out });
  execFileSync("diff", ["-r", "--no-dereference", work.data, join(out, "dataset/words")]);
  assert.equal(statSync(join(out, "dataset/words/alpha/tests/run")).mode & 0o777, 0o755);
  assert.deepEqual(readBundle(out), bundle);
  assert.deepEqual(Object.keys(bundle.tasks), ["alpha", "beta", "gamma"]);
  assert.deepEqual(bundle.images.map(({ refs }) => refs).sort(), [["debian:12", PIN], [BUILT]]);
  assert.equal(bundle.tasks.alpha!.images[0], bundle.tasks.gamma!.images[0]);
  assert.deepEqual(bundle.dataset.executable, ["alpha/tests/run"]);
  assert.deepEqual(bundle.dataset.links, { "alpha/tests/link": "run" });
  assert.deepEqual(bundle.dataset.empty_folders, ["alpha/tests/nothing"]);
  assert.deepEqual(bundle.needs_network, [{ task: "beta", file: "tests/test.sh", line: 2, why: "apt-get update" }]);
  const listed = execFileSync("find", [".", "-type", "f", "-printf", "%P\n"], { cwd: out, encoding: "utf8" }).trim()
    .split("\n").sort();
  const blobs = [BASE, OTHER].flatMap(({ manifest, config, layers }) => [manifest, config, ...layers]);
  const digests = [...new Set(blobs.map(({ digest }) => `images/oci/blobs/sha256/${digest.slice(7)}`))];
  const others = ["SHA256SUMS", "bundle.json", "images/oci/index.json", "images/oci/oci-layout"];
  assert.deepEqual(listed.filter((path) => !path.startsWith("dataset/")), [...others, ...digests].sort());
  assert.deepEqual(await work.faults("out", "linux/amd64"), []);
});

test("an export reads its layout as a store finds images: by every spelling", async () => {
  using work = await BundleWork.make();
  await work.export("out");
  const store = testStore(work.temp.join("out/images/oci"), true);
  for (const reference of ["debian:12", "docker.io/library/debian:12", PIN, `docker.io/${PIN}`]) {
    assert.equal((await store.find(reference, "linux/amd64"))?.config.digest, BASE.config.digest, reference);
  }
  assert.equal((await store.find(BUILT, "linux/amd64"))?.config.digest, OTHER.config.digest);
});

test("two exports are equal in every byte, mode and link", async () => {
  using work = await BundleWork.make();
  await work.export("one");
  await work.export("two");
  assert.equal(treeText(work.temp.join("one")), treeText(work.temp.join("two")));
});

test("with some of its tasks, a bundle keeps the dataset's digest and what makes it", async () => {
  using work = await BundleWork.make();
  const whole = await work.export("whole");
  const part = await exportBundle(await work.request("part", { only: ["beta"] }), work.sources(), work.deps(), never);
  assert.equal(part.dataset.digest, whole.dataset.digest);
  assert.deepEqual(Object.keys(part.tasks), ["beta"]);
  assert.equal(part.dataset.left_out.length, 2);
  assert.deepEqual(part.images.map(({ refs }) => refs), [[BUILT]]);
  assert.equal(existsSync(work.temp.join("part/dataset/words/alpha")), false);
  assert.deepEqual(await work.faults("part"), []);
});

test("an export says what it will write before it writes, and what it wrote", async () => {
  using work = await BundleWork.make();
  await work.export("out");
  assert.match(work.notes[0]!, /^dataset: 3 tasks, 15 files, \d+ B$/);
  assert.match(work.notes[1]!, /^images: 2, 7 blobs, [\d.]+ k?B$/);
  assert.match(work.notes[2]!, /^writing [\d.]+ kB to .*\/out, where .* are free$/);
  assert.match(work.notes.at(-1)!, /^written: 26 files, [\d.]+ kB$/);
});

test("an export that was cut off goes on: what is there and sound stays, the rest is made good", async () => {
  using work = await BundleWork.make();
  await work.export("whole");
  await work.export("out");
  const out = work.temp.join("out");
  writeFileSync(
    join(out, "EXPORT-UNFINISHED.json"),
    readFileSync(join(out, "bundle.json")) && JSON.stringify({
      taskset: "words",
      kind: "dataset",
      platform: "linux/amd64",
    }),
  );
  rmSync(join(out, "bundle.json"));
  rmSync(join(out, "SHA256SUMS"));
  writeFileSync(join(out, "dataset/words/beta/instruction.md"), "half");
  writeFileSync(join(out, "dataset/words/beta/instruction.md.part"), "");
  rmSync(join(out, "dataset/words/deep"), { recursive: true });
  chmodSync(join(out, "dataset/words/alpha/tests/run"), 0o600);
  const blob = join(out, "images/oci/blobs/sha256", OTHER.layers[1]!.digest.slice(7));
  mkdirSync(join(out, "images/oci/blobs/sha256/folder"));
  const kept = join(out, "images/oci/blobs/sha256", BASE.layers[0]!.digest.slice(7));
  const inode = statSync(kept).ino;
  writeFileSync(blob, Buffer.alloc(statSync(blob).size));
  await assert.rejects(() => Promise.resolve().then(() => readBundle(out)), /half a bundle/);
  await work.export("out");
  assert.equal(treeText(out), treeText(work.temp.join("whole")));
  assert.equal(statSync(kept).ino, inode, "a sound blob is not written again");
  assert.match(work.notes.join("\n"), /already there from an earlier try: /);
});

test("an export into a bundle of the same dataset brings it up to date", async () => {
  using work = await BundleWork.make();
  await work.export("out");
  rmSync(join(work.data, "beta"), { recursive: true });
  writeFileSync(join(work.data, "alpha/instruction.md"), "Do something else.\n");
  await work.export("out");
  await work.export("fresh");
  assert.equal(treeText(work.temp.join("out")), treeText(work.temp.join("fresh")));
});

const refused: Record<string, (work: BundleWork) => Promise<unknown>> = {
  "is no bundle: it holds precious.txt": (work) => {
    work.temp.task("out", { files: { "precious.txt": "mine" } });
    for (const name of ["task.toml", "instruction.md", "solution", "tests"]) {
      rmSync(work.temp.join("out", name), { recursive: true });
    }
    return work.export("out");
  },
  "holds a bundle of schema_version 2, this gym-harbor writes 1": async (work) => {
    await work.export("out");
    const index = work.temp.join("out", "bundle.json");
    writeFileSync(index, readFileSync(index, "utf8").replace('"schema_version": 1', '"schema_version": 2'));
    return work.export("out");
  },
  "holds a bundle of words for linux/amd64, not of other for linux/amd64": async (work) => {
    await work.export("out");
    return work.export("out", (request) => request.dataset.taskset = "other");
  },
  "is not on this machine": (work) =>
    work.export("out", (request) => {
      request.tasks[0]!.images = [{ refs: ["nowhere:1"] }];
    }),
  "2 images cannot be had": (work) =>
    work.export("out", (request) => {
      request.tasks[0]!.images = [{ refs: ["nowhere:1"] }, { refs: ["hb__ffffffffffffffffffffffffffffffff"] }];
    }),
  "changed while it was copied": (work) =>
    work.export("out", (request) => {
      request.tasks[0]!.folderDigest = "0".repeat(64);
    }),
};

for (const [message, act] of Object.entries(refused)) {
  test(`an export is refused: ${message}`, async () => {
    using work = await BundleWork.make();
    await assert.rejects(() => act(work), (error) => {
      assert.ok(error instanceof HarborError, String(error));
      assert.ok(error.message.includes(message), error.message);
      assert.ok(error.hint !== undefined && error.hint !== "");
      return true;
    });
    const whole = message.startsWith("holds a bundle"); // which was there before, and stays
    const there = () => JSON.parse(readFileSync(work.temp.join("out", "bundle.json"), "utf8"));
    if (whole) assert.equal(there().dataset.taskset, "words");
    else assert.throws(() => readBundle(work.temp.join("out")), HarborError);
  });
}

test("layers that may not be handed on refuse an export, all in one list", async () => {
  using work = await BundleWork.make();
  const image = makeImage([bytesOf("windows")]);
  const text = new TextDecoder().decode(image.manifestBytes)
    .replace("image.layer.v1.tar+gzip", "image.layer.nondistributable.v1.tar+gzip");
  const manifestBytes = bytesOf(text);
  const digest = `sha256:${createHash("sha256").update(manifestBytes).digest("hex")}`;
  const manifest = { ...image.manifest, digest, size: manifestBytes.length };
  await putImage(work.store, { ...image, manifest, manifestBytes }, ["windows:1"]);
  await assert.rejects(
    work.export("out", (request) => request.tasks[0]!.images = [{ refs: ["windows:1"] }]),
    new RegExp(`may not be handed on:\\n  windows:1: ${image.layers[0]!.digest}`),
  );
});

test("an image that only an engine holds is saved into the bundle", async () => {
  using work = await BundleWork.make();
  const image = makeImage([bytesOf("built here")]);
  const name = "hb__ffffffffffffffffffffffffffffffff";
  const request = await work.request("out");
  request.tasks[0]!.images = [{ refs: [name] }];
  const engine = {
    name: "docker",
    local: (reference: string) =>
      Promise.resolve(
        reference === name
          ? { configDigest: image.config.digest, repoDigests: [], config: {}, platform: "linux/amd64" }
          : undefined,
      ),
    saveInto: (_: string, store: unknown, names: string[]) =>
      putImage(store as ReturnType<typeof testStore>, image, names),
  };
  const bundle = await exportBundle(request, work.sources({ engines: [engine] }), work.deps(), never);
  assert.ok(bundle.images.some(({ refs, config_digest }) => refs[0] === name && config_digest === image.config.digest));
  assert.deepEqual(await work.faults("out"), []);
});
