import assert from "node:assert/strict";
import {
  chmodSync,
  chownSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { test } from "node:test";
import { systemClock } from "../../../lib/runtime/clock.ts";
import { systemRunner } from "../../../lib/runtime/runner.ts";
import { thisUid } from "../../../lib/runtime/user.ts";
import { unpackFolder } from "../../../lib/unpack/folder.ts";
import { heldIds } from "../../../lib/store/leases.ts";
import { layerTrees } from "../../../lib/unpack/trees.ts";
import { makeImage, never, putImage, testStore } from "../../support/images.ts";
import { FakeRunner } from "../../support/runner.ts";
import { tar } from "../../support/tar.ts";
import { TempFolder } from "../../support/tasks.ts";

const MAP = `single:${thisUid()}`;
const BASE = tar(["folder", "etc"], ["file", "etc/os", "base"], ["file", "etc/old", "x"], ["file", "o/lower", "x"]);
const UPPER = tar(["file", "etc/.wh.old"], ["file", "etc/new", "x"], ["file", "o/.wh..wh..opq"], [
  "file",
  "o/.wh.lower",
]);
const EMPTY = tar();
const OTHER_BASE = tar(["folder", "etc"], ["file", "etc/os", "other"]);

function given(temp: TempFolder) {
  const store = testStore(temp.join("images"));
  const deps = { unpackDir: temp.join("trees"), clock: systemClock, runner: systemRunner() };
  return { store, deps, put: async (...layers: Uint8Array[]) => await putImage(store, makeImage(layers), []) };
}

test("layerTrees() gives the layers topmost first, empty ones left out, and the same ones again", async () => {
  using temp = new TempFolder("trees");
  const { store, deps, put } = given(temp);
  const image = await put(BASE, EMPTY, UPPER);
  const { folders, notes } = await layerTrees(image, store, MAP, deps, never);
  assert.equal(folders.length, 2);
  assert.deepEqual(notes, []);
  const [upper, base] = folders as [string, string];
  assert.equal(readFileSync(join(base, "etc/os"), "utf8"), "base");
  assert.ok(lstatSync(join(upper, "etc/old")).isCharacterDevice());
  assert.equal(lstatSync(join(upper, "o/lower"), { throwIfNoEntry: false }), undefined);
  const made = lstatSync(base).ctimeMs;
  assert.deepEqual((await layerTrees(image, store, MAP, deps, never)).folders, folders);
  assert.equal(lstatSync(base).ctimeMs, made);
  assert.equal(lstatSync(temp.join("trees")).mode & 0o777, 0o700, "set-uid programs of images lie in there");
  const held = heldIds(dirname(dirname(base)), systemClock);
  for (const folder of folders) assert.ok(held.has(basename(dirname(folder))), "a clean-up must leave it alone");
});

test("a layer is shared between images; one with whiteouts only where the layers below are the same", async () => {
  using temp = new TempFolder("trees");
  const { store, deps, put } = given(temp);
  const one = await layerTrees(await put(BASE, UPPER), store, MAP, deps, never);
  const top = tar(["file", "top", "x"]);
  const two = await layerTrees(await put(BASE, UPPER, top), store, MAP, deps, never);
  assert.deepEqual(two.folders.slice(1), one.folders);
  const other = await layerTrees(await put(OTHER_BASE, UPPER, top), store, MAP, deps, never);
  assert.equal(other.folders[0], two.folders[0]);
  assert.notEqual(other.folders[1], two.folders[1]);
  assert.equal(
    lstatSync(join(other.folders[1]!, "etc/old"), { throwIfNoEntry: false }),
    undefined,
    "nothing to hide there",
  );
});

test("a layer that an image has twice appears once, where it is topmost", async () => {
  using temp = new TempFolder("trees");
  const { store, deps, put } = given(temp);
  const between = tar(["file", "etc/os", "between"]);
  const { folders } = await layerTrees(await put(BASE, between, BASE), store, MAP, deps, never);
  assert.equal(folders.length, 2);
  assert.equal(readFileSync(join(folders[0]!, "etc/os"), "utf8"), "base");
});

test("another owner map has trees of its own", { skip: thisUid() !== 0 && "needs root" }, async () => {
  using temp = new TempFolder("trees");
  const { store, deps, put } = given(temp);
  const image = await put(BASE);
  const single = await layerTrees(image, store, "single:0", deps, never);
  const shifted = await layerTrees(image, store, "shift:2000000000", deps, never);
  assert.notEqual(single.folders[0], shifted.folders[0]);
  const { uid } = lstatSync(join(shifted.folders[0]!, "etc/os"));
  assert.equal(uid, 2_000_000_000);
  assert.equal(lstatSync(temp.join("trees")).mode & 0o777, 0o711, "the map's root gets through");
  assert.equal(lstatSync(temp.join("trees/shift-2000000000")).uid, 2_000_000_000);
});

test("below a set-gid folder the image's groups are kept", { skip: thisUid() !== 0 && "needs root" }, async () => {
  using temp = new TempFolder("trees");
  const { store, deps, put } = given(temp);
  mkdirSync(temp.join("scratch"));
  chownSync(temp.join("scratch"), 0, 12_345);
  chmodSync(temp.join("scratch"), 0o2755);
  const unpack = { ...deps, unpackDir: temp.join("scratch", "trees") };
  const { folders } = await layerTrees(await put(BASE), store, "shift:0", unpack, never);
  for (const path of ["etc", "etc/os", "o"]) {
    const { gid, mode } = lstatSync(join(folders[0]!, path));
    assert.deepEqual([path, gid, mode & 0o7000], [path, 0, 0]);
  }
});

test("several that want a layer at once have it unpacked once, and nothing is left beside", async () => {
  using temp = new TempFolder("trees");
  const { store, deps, put } = given(temp);
  const image = await put(BASE, UPPER);
  const all = await Promise.all([1, 2, 3, 4].map(() => layerTrees(image, store, MAP, deps, never)));
  for (const { folders } of all) assert.deepEqual(folders, all[0]!.folders);
  const names = readdirSync(dirname(dirname(all[0]!.folders[0]!)));
  assert.deepEqual(names.filter((name) => /^\.new|lock/.test(name)), []);
});

test("what a killed process left half made is removed and made anew; a tree without a marker is none", async () => {
  using temp = new TempFolder("trees");
  const { store, deps, put } = given(temp);
  const image = await put(BASE);
  const { folders } = await layerTrees(image, store, MAP, deps, never);
  const place = dirname(dirname(folders[0]!));
  const name = basename(dirname(folders[0]!));
  rmSync(join(place, name, "layer.json"));
  rmSync(join(folders[0]!, "etc/os"));
  mkdirSync(join(place, `.new-${name}-dead`, "t"), { recursive: true });
  writeFileSync(join(place, `.new-${name}-dead`, "t", "half"), "x");
  assert.deepEqual((await layerTrees(image, store, MAP, deps, never)).folders, folders);
  assert.equal(readFileSync(join(folders[0]!, "etc/os"), "utf8"), "base");
  assert.equal(existsSync(join(place, `.new-${name}-dead`)), false);
});

test("a damaged layer leaves no tree and says which blob", async () => {
  using temp = new TempFolder("trees");
  const { store, deps, put } = given(temp);
  const image = await put(BASE);
  writeFileSync(store.blobPath(image.layers[0]!.digest), "rubbish");
  await assert.rejects(
    layerTrees(image, store, MAP, deps, never),
    new RegExp(`${image.layers[0]!.digest}.*is damaged`),
  );
  assert.deepEqual(readdirSync(temp.join("trees", MAP.replace(":", "-"))).filter((name) => name !== ".leases"), []);
});

test("where tar cannot add whiteouts the image becomes one flat tree, with a note", async () => {
  using temp = new TempFolder("trees");
  const { store, deps, put } = given(temp);
  const real = systemRunner();
  const runner = {
    ...real,
    run: () =>
      Promise.resolve({ ended: "exit" as const, exitCode: 2, stdout: "", stderr: "Cannot mknod", droppedBytes: 0 }),
  };
  const image = await put(BASE, UPPER);
  const { folders, notes } = await layerTrees(image, store, MAP, { ...deps, runner }, never);
  assert.equal(folders.length, 1);
  assert.match(notes[0]!, /cannot hold whiteouts/);
  assert.equal(existsSync(join(folders[0]!, "etc/old")), false);
  assert.equal(existsSync(join(folders[0]!, "o/lower")), false);
  assert.equal(readFileSync(join(folders[0]!, "etc/new"), "utf8"), "x");
});

test("a folder for trees that others may write is refused", async () => {
  using temp = new TempFolder("trees");
  const { store, deps, put } = given(temp);
  mkdirSync(temp.join("trees"));
  chmodSync(temp.join("trees"), 0o777);
  const image = await put(BASE);
  await assert.rejects(layerTrees(image, store, MAP, deps, never), /not a folder of ours alone/);
});

test("unpackFolder() is beside the store, but local when that is on a network file system, and never in a bundle", () => {
  using temp = new TempFolder("trees");
  const env = { XDG_CACHE_HOME: temp.join("cache"), TMPDIR: temp.path };
  const local = join(temp.path, `gym-harbor-${thisUid()}`, "trees");
  const own = { folder: temp.join("cache/gym-harbor/images"), readOnly: false };
  const named = { folder: temp.join("data/images"), readOnly: false };
  const typeOf = (networked: string) => (folder: string) => folder.includes(networked) ? "nfs" : undefined;
  assert.equal(unpackFolder(env, "/x", own), "/x");
  assert.equal(unpackFolder(env, undefined, own), temp.join("cache/gym-harbor/trees"));
  assert.equal(unpackFolder(env, undefined, named), temp.join("data/images-trees"));
  assert.equal(unpackFolder(env, undefined, named, typeOf("/data/")), temp.join("cache/gym-harbor/trees"));
  assert.equal(unpackFolder(env, undefined, own, typeOf("/cache/")), local);
  assert.equal(unpackFolder(env, undefined, { ...named, readOnly: true }), temp.join("cache/gym-harbor/trees"));
});

test("E16: a disk that is full while a layer is unpacked is named, with what to do; nothing half is left", async () => {
  using temp = new TempFolder("trees");
  const { store, deps, put } = given(temp);
  const fault = {
    code: "image.failed",
    message: "The layer sha256:ab cannot be unpacked: 'x': no space left on the disk",
    diskFull: true,
  };
  using runner = new FakeRunner().expect(/^unshare .*unpack-layer$/, { stdout: JSON.stringify({ fault }) });
  await assert.rejects(layerTrees(await put(BASE), store, "range:100000", { ...deps, runner }, never), {
    code: "image.failed",
    message: /^Cannot unpack into .*trees\/range-100000: The layer .*no space left on the disk$/,
    hint: /--unpack-dir DIR/,
  });
  assert.deepEqual(readdirSync(temp.join("trees/range-100000")).filter((name) => !name.startsWith(".leases")), []);
});
