import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { main } from "../../../cmd/mod.ts";
import { neededBy } from "../../../cmd/images/list.ts";
import { madeBy } from "../../../cmd/images/tree.ts";
import { systemRunner } from "../../../lib/runtime/runner.ts";
import { usePath } from "../../../lib/store/use.ts";
import { testContext } from "../../support/context.ts";
import { makeImage, putImage, testStore } from "../../support/images.ts";
import { tar } from "../../support/tar.ts";
import { TempFolder } from "../../support/tasks.ts";

const BASE = tar(["folder", "etc"], ["file", "etc/os-release", "ID=x\n"]);
const IMAGE = makeImage([BASE, tar(["file", "a", "x"])]);
const OTHER = makeImage([BASE]);

async function images(temp: TempFolder, ...words: string[]) {
  const { ctx, out, notes } = testContext({
    cwd: temp.path,
    env: { XDG_CACHE_HOME: temp.join("cache") },
    runner: systemRunner(),
  });
  const code = await main(["images", ...words], ctx);
  return { code, out, notes };
}

async function withImages(temp: TempFolder) {
  const store = testStore(temp.join("cache/gym-harbor/images"));
  await putImage(store, IMAGE, ["debian:12"]);
  await putImage(store, OTHER, ["hb__0123abcd"]);
  return store;
}

test("images list shows names, ids and sizes, and says what cannot be used", async () => {
  using temp = new TempFolder("images");
  assert.deepEqual((await images(temp, "list")).notes, [`no images in ${temp.join("cache/gym-harbor/images")}`]);
  const store = await withImages(temp);
  const { code, out, notes } = await images(temp, "list");
  assert.equal(code, 0);
  assert.match(out[0]!, /^IMAGE +ID +PLATFORM +LAYERS +SIZE +USED$/);
  assert.equal(out.length, 3);
  assert.ok(out.some((line) => line.startsWith(`debian:12 `) && line.includes(IMAGE.config.digest.slice(7, 19))));
  assert.match(notes.at(-1)!, /^2 images, /);
  const json = (await images(temp, "list", "--json")).out.map((line) => JSON.parse(line));
  assert.deepEqual(json.map(({ names }) => names[0]).sort(), ["docker.io/library/debian:12", "hb__0123abcd"]);
  rmSync(store.blobPath(IMAGE.layers[1]!.digest));
  assert.match(
    (await images(temp, "list")).notes.join("\n"),
    /warning: docker.io\/library\/debian:12 cannot be used: missing blobs: sha256:/,
  );
});

test("images list TARGET says which tasks use what and whether it is there", async () => {
  using temp = new TempFolder("images");
  await withImages(temp);
  temp.task("set/one", { image: "debian:12" });
  temp.task("set/two", { image: "debian:12" });
  temp.task("set/three", { image: "nowhere/else:1" });
  const { code, out } = await images(temp, "list", "set", "--json");
  assert.equal(code, 1);
  const found = out.map((line) => JSON.parse(line)).map((
    { reference, tasks, in_store },
  ) => [reference, tasks, in_store]);
  assert.deepEqual(found.sort(), [["debian:12", ["one", "two"], true], ["nowhere/else:1", ["three"], false]]);
  rmSync(temp.join("set/three"), { recursive: true });
  assert.equal((await images(temp, "list", "set")).code, 0);
});

test("images list TARGET says of which tasks it does not know the images", async () => {
  using temp = new TempFolder("images");
  await withImages(temp);
  temp.task("set/one", { image: "debian:12" });
  temp.task("set/broken", { toml: "[agent]\ntimeout_sec = -5\n" });
  const files = { "environment/docker-compose.yaml": "services: {main: {network_mode: host}}\n" };
  temp.task("set/group", { image: "debian:12", files });
  const { code, out, notes } = await images(temp, "list", "set", "--json");
  assert.equal(code, 1);
  assert.deepEqual(out.map((line) => JSON.parse(line).tasks), [["one"]]);
  assert.match(notes.join("\n"), /the images of broken are not known: .*timeout_sec/);
  assert.match(notes.join("\n"), /the images of group are not known: .*network_mode/);
});

test("neededBy() names each image once, with all of its tasks", () => {
  const of = (id: string, reference: string) => ({
    task: { id },
    images: [{ role: "main", origin: { kind: "prebuilt" as const, reference } }, {
      role: "verifier",
      origin: { kind: "none" as const },
    }],
  });
  assert.deepEqual(neededBy([of("a", "x:1"), of("b", "y:1"), of("c", "x:1")]), [
    { reference: "x:1", how: "image", tasks: ["a", "c"] },
    { reference: "y:1", how: "image", tasks: ["b"] },
  ]);
});

test("images tree shows layers, what made them and what shares them", async () => {
  using temp = new TempFolder("images");
  await withImages(temp);
  const { out } = await images(temp, "tree", "debian:12");
  assert.match(out[0]!, /^debian:12 +linux\/amd64/);
  assert.match(out.join("\n"), /shared by 1: hb__0123abcd/);
  assert.equal((await images(temp, "tree", IMAGE.config.digest.slice(7, 15))).code, 0, "by the id that list shows");
  const wrong = await images(temp, "tree", "debain:12");
  assert.equal(wrong.code, 1);
  assert.match(wrong.notes.join("\n"), /did you mean debian:12/);
});

test("madeBy() passes over history that made no layer", () => {
  const file = {
    os: "linux",
    architecture: "amd64",
    rootfs: { diff_ids: ["a", "b"] },
    history: [{ created_by: "one" }, { created_by: "ENV", empty_layer: true }, { created_by: "two" }],
  };
  assert.deepEqual(madeBy(file), ["one", "two"]);
  const odd: { history: unknown } = { history: "none" };
  assert.deepEqual(madeBy({ ...file, ...odd }), []);
});

test("images save writes archives and a map, the same twice; images load brings all names back", async () => {
  using temp = new TempFolder("images");
  await withImages(temp);
  const saved = await images(temp, "save", "debian:12", "hb__0123abcd", "--out", "carry");
  assert.equal(saved.code, 0, saved.notes.join("\n"));
  const files = () =>
    readdirSync(temp.join("carry")).sort().map((name) => [name, readFileSync(temp.join("carry", name), "latin1")]);
  const first = files();
  assert.equal(first.length, 3);
  await images(temp, "save", "hb__0123abcd", "debian:12", "--out", "carry");
  assert.deepEqual(files(), first);
  rmSync(temp.join("carry"), { recursive: true });
  writeFileSync(temp.join("images.json"), JSON.stringify(["hb__0123abcd", "debian:12"]));
  await images(temp, "save", "images.json", "--out", "carry");
  assert.deepEqual(files(), first);
  const loaded = await images(temp, "load", "carry", "--image-store", temp.join("other"), "--json");
  assert.deepEqual(
    loaded.out.map((line) => JSON.parse(line).config_digest).sort(),
    [IMAGE, OTHER].map(({ config }) => config.digest.slice(7)).sort(),
  );
  assert.deepEqual((await testStore(temp.join("other")).list()).flatMap(({ names }) => names).sort(), [
    "docker.io/library/debian:12",
    "hb__0123abcd",
  ]);
});

test("images load refuses a folder without a map, a missing archive and one that was swapped", async () => {
  using temp = new TempFolder("images");
  await withImages(temp);
  assert.equal((await images(temp, "load", ".")).code, 2);
  await images(temp, "save", "debian:12", "hb__0123abcd", "--out", "carry");
  const [one, two] = readdirSync(temp.join("carry")).filter((name) => name.endsWith(".tar")).sort();
  const load = async (store: string) =>
    (await images(temp, "load", "carry", "--image-store", temp.join(store))).notes.join("\n");
  const bytes = readFileSync(temp.join("carry", two!));
  writeFileSync(temp.join("carry", two!), readFileSync(temp.join("carry", one!)));
  assert.match(await load("one"), /holds the image [0-9a-f]{64}, map.json says/);
  writeFileSync(temp.join("carry", two!), bytes);
  rmSync(temp.join("carry", one!));
  assert.match(await load("two"), /which is not there/);
});

test("images save of an image that is not here fails before it writes", async () => {
  using temp = new TempFolder("images");
  await withImages(temp);
  assert.equal((await images(temp, "save", "debian:12", "nowhere:1", "--out", "carry")).code, 1);
  assert.equal(existsSync(temp.join("carry")), false);
  assert.equal((await images(temp, "save", "debian:12")).code, 2, "--out is missing");
});

test("images gc says with --dry-run what it then removes", async () => {
  using temp = new TempFolder("images");
  const store = await withImages(temp);
  const old = new Date(Date.now() - 50 * 86_400_000);
  for (const { digest } of [IMAGE.manifest, IMAGE.config, ...IMAGE.layers]) {
    utimesSync(store.blobPath(digest), old, old);
  }
  const dry = await images(temp, "gc", "--older-than", "30d", "--dry-run");
  assert.deepEqual(dry.out, ["would remove debian:12 (unused)"]);
  assert.equal((await store.list()).length, 2);
  const real = await images(temp, "gc", "--older-than", "30d", "--json");
  assert.deepEqual(JSON.parse(real.out[0]!).image, ["docker.io/library/debian:12"]);
  assert.deepEqual((await store.list()).map(({ names }) => names), [["hb__0123abcd"]]);
  assert.equal(existsSync(usePath(store.folder, IMAGE.manifest.digest)), false);
  assert.equal((await images(temp, "gc", "--older-than", "soon")).code, 2);
  assert.equal((await images(temp, "gc", "--max-size", "big")).code, 2);
});

const PULLS: [name: string, words: string[], code: number, says: RegExp][] = [
  ["a local build", ["hb__0123456789abcdef"], 1, /built on a machine and is in no registry/],
  ["a name that is none", ["UPPER case"], 2, /is not an image reference/],
  ["a list that is none", ["list.json"], 2, /not a list of images/],
  ["an image offline", ["debian:13", "--offline"], 2, /Offline: debian:13 is not in the image store/],
  ["an unknown override", ["debian:13", "registries.x.insecur=true", "--offline"], 2, /unknown key/],
];
for (const [name, words, code, says] of PULLS) {
  test(`images pull refuses ${name}`, async () => {
    using temp = new TempFolder("images");
    writeFileSync(temp.join("list.json"), "{}");
    const found = await images(temp, "pull", ...words);
    assert.match(found.notes.join("\n"), says);
    assert.equal(found.code, code);
  });
}

test("images pull --offline of what is here is content", async () => {
  using temp = new TempFolder("images");
  await withImages(temp);
  const { code, out } = await images(temp, "pull", "hb__0123abcd", "docker.io/debian:12", "--offline", "--json");
  assert.equal(code, 0);
  const digests = out.map((line) => JSON.parse(line).config_digest);
  assert.deepEqual(digests.sort(), [OTHER, IMAGE].map(({ config }) => config.digest.slice(7)).sort());
});
