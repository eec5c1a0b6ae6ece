import assert from "node:assert/strict";
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { bytesOf, jsonBytes, makeImage, putImage, sha256, testStore } from "../../support/images.ts";
import { TempFolder } from "../../support/tasks.ts";

const DEBIAN = makeImage([bytesOf("layer one")], { config: { Cmd: ["bash"] } });
const DEBIAN_ARM = makeImage([bytesOf("layer one")], { architecture: "arm64" });
const INDEX_DIGEST = `sha256:${"1".repeat(64)}`;

test("a new store is empty, and reading it makes nothing", async () => {
  using temp = new TempFolder("store");
  const store = testStore(temp.join("images"));
  assert.deepEqual(await store.list(), []);
  assert.equal(await store.find("debian:12", "linux/amd64"), undefined);
  assert.equal(existsSync(temp.join("images")), false);
});

test("find() takes every spelling of a name, pins, and digests of manifest, index and configuration", async () => {
  using temp = new TempFolder("store");
  const store = testStore(temp.path);
  await putImage(store, DEBIAN, ["debian:12", "hb__0123abcd", "quay.io/o/p@sha256:" + "2".repeat(64)]);
  await store.add({ ...DEBIAN, indexDigest: INDEX_DIGEST }, ["docker.io/library/debian:12"]);
  const found = [
    "debian:12",
    "docker.io/debian:12",
    "index.docker.io/library/debian:12",
    "docker://debian:12",
    "hb__0123abcd",
    "localhost/hb__0123abcd:latest",
    "docker.io/library/hb__0123abcd:latest",
    DEBIAN.manifest.digest,
    DEBIAN.config.digest,
    DEBIAN.config.digest.slice("sha256:".length),
    INDEX_DIGEST,
    `library/debian@${INDEX_DIGEST}`,
    `debian:12@${INDEX_DIGEST}`,
    `debian@${DEBIAN.manifest.digest}`,
    `quay.io/o/p@sha256:${"2".repeat(64)}`,
  ];
  for (const reference of found) {
    assert.equal((await store.find(reference, "linux/x86_64"))?.manifest.digest, DEBIAN.manifest.digest, reference);
  }
  const absent = [
    "debian",
    "debian:11",
    "hb__0123",
    "ghcr.io/library/debian:12",
    `debian@${DEBIAN.config.digest}`,
    "!",
  ];
  for (const reference of absent) assert.equal(await store.find(reference, "linux/amd64"), undefined, reference);
  assert.equal(await store.find("debian:12", "linux/arm64"), undefined, "another platform");
});

test("one name may stand for one image on each platform; a name that is given again moves", async () => {
  using temp = new TempFolder("store");
  const store = testStore(temp.path);
  const newer = makeImage([bytesOf("layer two")]);
  await putImage(store, DEBIAN, ["debian:12"]);
  await putImage(store, DEBIAN_ARM, ["debian:12"]);
  await putImage(store, newer, ["debian:12"]);
  assert.equal((await store.find("debian:12", "linux/amd64"))?.manifest.digest, newer.manifest.digest);
  assert.equal((await store.find("debian:12", "linux/arm64"))?.manifest.digest, DEBIAN_ARM.manifest.digest);
  assert.deepEqual((await store.find(DEBIAN.manifest.digest, "linux/amd64"))?.names, []);
});

test("entries and keys of other tools stay as they are, and their names are found", async () => {
  using temp = new TempFolder("store");
  const store = testStore(temp.path);
  await putImage(store, DEBIAN, []);
  const foreign = {
    ...DEBIAN.manifest,
    annotations: { "org.opencontainers.image.ref.name": "alpine:3", other: "x" },
    urls: ["u"],
  };
  writeFileSync(temp.join("index.json"), JSON.stringify({ schemaVersion: 2, key: 1, manifests: [foreign] }));
  assert.equal((await store.find("docker.io/library/alpine:3", "linux/amd64"))?.config.digest, DEBIAN.config.digest);
  await putImage(store, DEBIAN_ARM, ["debian:12"]);
  const index = JSON.parse(readFileSync(temp.join("index.json"), "utf8"));
  assert.equal(index.key, 1);
  assert.deepEqual(index.manifests[0], foreign);
});

test("an index among the entries is opened as far as its images are here", async () => {
  using temp = new TempFolder("store");
  const store = testStore(temp.path);
  await putImage(store, DEBIAN, []);
  const bytes = jsonBytes({
    schemaVersion: 2,
    manifests: [
      { ...DEBIAN_ARM.manifest, platform: { os: "linux", architecture: "arm64" } },
      { ...DEBIAN.manifest, platform: { os: "linux", architecture: "amd64" } },
      { ...DEBIAN.manifest, digest: INDEX_DIGEST, platform: { os: "unknown", architecture: "unknown" } },
    ],
  });
  writeFileSync(store.blobPath(sha256(bytes)), bytes);
  const entry = {
    mediaType: "application/vnd.oci.image.index.v1+json",
    digest: sha256(bytes),
    size: bytes.length,
    annotations: { "io.containerd.image.name": "docker.io/library/debian:12" },
  };
  writeFileSync(temp.join("index.json"), JSON.stringify({ schemaVersion: 2, manifests: [entry] }));
  for (const reference of ["debian:12", `debian@${sha256(bytes)}`]) {
    assert.equal((await store.find(reference, "linux/amd64"))?.manifest.digest, DEBIAN.manifest.digest, reference);
  }
});

test("the same images added in any order give the same index, byte for byte", async () => {
  using temp = new TempFolder("store");
  const images = [DEBIAN, DEBIAN_ARM, makeImage([bytesOf("x")])];
  for (const [name, order] of [["a", images], ["b", [...images].reverse()]] as const) {
    const store = testStore(temp.join(name));
    for (const image of order) {
      await putImage(store, image, [`x:${images.indexOf(image)}`, "y@" + image.manifest.digest]);
    }
  }
  assert.equal(readFileSync(temp.join("a/index.json"), "utf8"), readFileSync(temp.join("b/index.json"), "utf8"));
});

test("a damaged manifest is refused by its digest and removed, so that a pull brings it again", async () => {
  using temp = new TempFolder("store");
  await putImage(testStore(temp.path), DEBIAN, ["debian:12"]);
  const path = testStore(temp.path).blobPath(DEBIAN.manifest.digest);
  const bytes = readFileSync(path);
  bytes[10]! ^= 1;
  writeFileSync(path, bytes);
  await assert.rejects(testStore(temp.path, true).find("debian:12", "linux/amd64"), (error: Error) => {
    assert.match(error.message, new RegExp(`${DEBIAN.manifest.digest}.* is damaged`));
    return true;
  });
  assert.equal(existsSync(path), true, "a read-only store keeps it");
  await assert.rejects(testStore(temp.path).find("debian:12", "linux/amd64"), /is damaged/);
  assert.equal(existsSync(path), false);
  assert.deepEqual((await testStore(temp.path).faults()).map(({ names }) => names), [["docker.io/library/debian:12"]]);
  await putImage(testStore(temp.path), DEBIAN, ["debian:12"]);
  assert.ok(await testStore(temp.path).find("debian:12", "linux/amd64"));
});

test("an image that lacks a blob, or holds a cut-off one, is not found and is a fault", async () => {
  using temp = new TempFolder("store");
  const store = testStore(temp.path);
  await putImage(store, DEBIAN, ["debian:12"]);
  const layer = DEBIAN.layers[0]!;
  writeFileSync(store.blobPath(layer.digest), "short");
  assert.equal(await store.find("debian:12", "linux/amd64"), undefined);
  assert.deepEqual(await store.list(), []);
  assert.match((await store.faults())[0]!.reason, new RegExp(layer.digest));
  await assert.rejects(store.add(DEBIAN, ["again"]), new RegExp(`${layer.digest}.* is damaged: its bytes are only 5`));
  await assert.rejects(store.add(DEBIAN, ["again"]), new RegExp(`${layer.digest} is missing`));
  await putImage(store, DEBIAN, ["again"]);
  await assert.rejects(store.add(DEBIAN, ["two names"]), /'two names' is no name/);
});

test("an index that is no index is refused by its path", async () => {
  using temp = new TempFolder("store");
  writeFileSync(temp.join("index.json"), "<html>");
  await assert.rejects(testStore(temp.path).list(), new RegExp(temp.join("index.json")));
});

test("a store that may not be written can be read, and refuses to take", async () => {
  using temp = new TempFolder("store");
  await putImage(testStore(temp.join("s")), DEBIAN, ["debian:12"]);
  chmodSync(temp.join("s"), 0o555);
  const store = testStore(temp.join("s"), true);
  assert.equal((await store.find("debian:12", "linux/amd64"))?.names[0], "docker.io/library/debian:12");
  await assert.rejects(putImage(store, DEBIAN_ARM, ["x"]), /read-only/);
  await assert.rejects(store.add(DEBIAN, ["x"]), /read-only/);
  chmodSync(temp.join("s"), 0o755);
});

test("eight that name images at once lose none", async () => {
  using temp = new TempFolder("store");
  mkdirSync(temp.join("s"));
  const images = Array.from({ length: 8 }, (_, index) => makeImage([bytesOf(`layer ${index}`)]));
  await Promise.all(images.map((image, index) => putImage(testStore(temp.join("s")), image, [`many:${index}`])));
  assert.equal((await testStore(temp.join("s")).list()).length, 8);
  assert.deepEqual(readdirSync(temp.join("s", ".partial")), []);
});
