import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { linkSync, lstatSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { systemClock } from "../../../lib/runtime/clock.ts";
import { systemRunner } from "../../../lib/runtime/runner.ts";
import { thisUid } from "../../../lib/runtime/user.ts";
import { importFromEngine, saveArgv } from "../../../lib/store/engine.ts";
import { importImages } from "../../../lib/store/import.ts";
import { layerTrees } from "../../../lib/unpack/trees.ts";
import { bytesOf, makeImage, never, putImage, testStore } from "../../support/images.ts";
import { tar } from "../../support/tar.ts";
import { TempFolder, writeFiles } from "../../support/tasks.ts";

const deps = { clock: systemClock, runner: systemRunner() };

const take = (temp: TempFolder, source: string, names: string[] = []) =>
  importImages({ source, cwd: temp.path, names, platform: "linux/amd64" }, testStore(temp.join("store")), deps, never);

async function treeOf(temp: TempFolder, image: Awaited<ReturnType<typeof take>>[number]): Promise<string> {
  const unpack = { ...deps, unpackDir: temp.join("trees") };
  const store = testStore(temp.join("store"));
  return (await layerTrees(image, store, `single:${thisUid()}`, unpack, never)).folders[0]!;
}

function rootfs(temp: TempFolder, name = "root"): string {
  writeFiles(temp.join(name), {
    "etc/os-release": "ID=test\n",
    "bin/tool": { text: "#!/bin/sh\n", mode: "755" },
    "bin/sh": { symlink: "/bin/tool" },
    "tmp": { dir: 1 },
  });
  linkSync(temp.join(name, "bin/tool"), temp.join(name, "bin/again"));
  execFileSync("find", [temp.join(name), "-exec", "touch", "-h", "-d", "@1700000000", "{}", "+"]);
  return temp.join(name);
}

test("a folder with a root file system becomes an image of one layer, the same one each time", async () => {
  using temp = new TempFolder("import");
  rootfs(temp);
  const [image] = await take(temp, "root", ["mine:1"]);
  assert.deepEqual(image!.names, ["docker.io/library/mine:1"]);
  assert.equal(image!.platform, "linux/amd64");
  const tree = await treeOf(temp, image!);
  assert.equal(readFileSync(join(tree, "etc/os-release"), "utf8"), "ID=test\n");
  assert.equal(lstatSync(join(tree, "bin/tool")).nlink, 2);
  assert.equal(lstatSync(join(tree, "bin/tool")).mode & 0o777, 0o755);
  const [again] = await take(temp, "root", ["mine:2"]);
  assert.equal(again!.manifest.digest, image!.manifest.digest);
});

for (const [name, pack] of [["plain", (bytes: Uint8Array) => bytes], ["gzip", gzipSync]] as const) {
  test(`an archive of a root file system (${name}) becomes an image whose layer it is`, async () => {
    using temp = new TempFolder("import");
    const archive = tar(["folder", "./"], ["folder", "./etc"], ["file", "./etc/os-release", "ID=x\n"], [
      "file",
      "./.dockerenv",
    ]);
    writeFileSync(temp.join("root.tar"), pack(archive));
    const [image] = await take(temp, "root.tar", ["mine:1"]);
    assert.equal(readFileSync(join(await treeOf(temp, image!), "etc/os-release"), "utf8"), "ID=x\n");
  });
}

test("an OCI layout gives all of its images under their names, or one under a name that is given", async () => {
  using temp = new TempFolder("import");
  const layout = testStore(temp.join("layout"));
  const one = await putImage(layout, makeImage([bytesOf("1")]), ["one:1"]);
  assert.deepEqual((await take(temp, "layout", ["mine:1"])).map(({ names }) => names), [["docker.io/library/mine:1"]]);
  await putImage(layout, makeImage([bytesOf("2")]), ["two:2"]);
  const taken = await take(temp, "layout");
  assert.deepEqual(taken.map(({ names }) => names.at(-1)).sort(), [
    "docker.io/library/one:1",
    "docker.io/library/two:2",
  ]);
  await assert.rejects(take(temp, "layout", ["mine:1"]), /has 2 images, and one name was given/);
  writeFileSync(layout.blobPath(one.layers[0]!.digest), "short");
  await assert.rejects(take(temp, "layout"), new RegExp(`one:1: missing blobs: ${one.layers[0]!.digest}`));
});

const WRONG: [name: string, prepare: (temp: TempFolder) => string, says: RegExp][] = [
  ["nothing there", () => "nowhere", /There is no .*nowhere/],
  ["a folder of anything", (temp) => (mkdirSync(temp.join("x")), "x"), /neither an OCI layout nor a root file system/],
  ["a root without a name", (temp) => (rootfs(temp), "root"), /no name of its own/],
  ["a text file", (temp) => (writeFileSync(temp.join("x"), "hello"), "x"), /Cannot import x|not a usable tar archive/],
  ["an empty file", (temp) => (writeFileSync(temp.join("x"), ""), "x"), /neither a manifest.json nor an OCI layout/],
  [
    "a bundle",
    (temp) => (mkdirSync(temp.join("b")), writeFileSync(temp.join("b/bundle.json"), "{}"), "b"),
    /is a bundle/,
  ],
];
for (const [name, prepare, says] of WRONG) {
  test(`importImages() refuses ${name}`, async () => {
    using temp = new TempFolder("import");
    await assert.rejects(take(temp, prepare(temp)), says);
  });
}

test("a store inside the root that is imported is refused", async () => {
  using temp = new TempFolder("import");
  const root = rootfs(temp);
  const request = { source: root, cwd: temp.path, names: ["x:1"], platform: "linux/amd64" };
  await assert.rejects(importImages(request, testStore(join(root, "store")), deps, never), /lies inside/);
});

test("an engine's image keeps the name it was asked by; what the engine says is the error", async () => {
  using temp = new TempFolder("import");
  const made = makeImage([tar(["file", "a", "x"])], { compress: (bytes) => bytes });
  const config = `${made.config.digest.slice(7)}.json`;
  const manifest = [{ Config: config, RepoTags: ["localhost/other:1"], Layers: ["l.tar"] }];
  writeFileSync(
    temp.join("a.tar"),
    tar(["file", "l.tar", made.layers[0]!.bytes], ["file", config, made.configBytes], [
      "file",
      "manifest.json",
      JSON.stringify(manifest),
    ]),
  );
  const store = testStore(temp.join("store"));
  const image = await importFromEngine(
    "podman",
    "python:3",
    store,
    { ...deps, argv: ["cat", temp.join("a.tar")] },
    never,
  );
  assert.deepEqual(image.names, ["docker.io/library/python:3"]);
  assert.equal(image.config.digest, made.config.digest);
  const argv = ["sh", "-c", "echo Error: no such image >&2; exit 125"];
  await assert.rejects(
    importFromEngine("podman", "x", store, { ...deps, argv }, never),
    /Cannot import podman:x: no such image/,
  );
  const cut = ["sh", "-c", `head -c 700 ${temp.join("a.tar")}; echo Error: killed >&2; exit 1`];
  await assert.rejects(importFromEngine("docker", "x", store, { ...deps, argv: cut }, never), /docker:x: killed/);
});

test("saveArgv() asks for one tag, never for all of a repository", () => {
  const last = (name: string) => saveArgv("docker", name).at(-1);
  assert.equal(last("debian"), "debian:latest");
  assert.equal(last("host:5000/debian"), "host:5000/debian:latest");
  assert.equal(last("debian:12"), "debian:12");
  assert.equal(last("hb__0123"), "hb__0123:latest");
  assert.equal(last("0123456789ab"), "0123456789ab");
  assert.equal(last(`debian@sha256:${"1".repeat(64)}`), `debian@sha256:${"1".repeat(64)}`);
  assert.deepEqual(saveArgv("podman", "x:1"), ["podman", "save", "--format", "docker-archive", "x:1"]);
});
