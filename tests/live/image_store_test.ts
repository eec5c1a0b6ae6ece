/** Our image store against real engines, a real registry, small disks and sudden death. */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { gzipSync, zstdCompressSync } from "node:zlib";
import { HarborError, isDiskFull } from "../../lib/errors.ts";
import { systemClock } from "../../lib/runtime/clock.ts";
import { systemRunner } from "../../lib/runtime/runner.ts";
import { thisUid } from "../../lib/runtime/user.ts";
import { digestOfFile } from "../../lib/store/blobs.ts";
import { importFromEngine } from "../../lib/store/engine.ts";
import type { StoredImage } from "../../lib/store/store.ts";
import { layerTrees } from "../../lib/unpack/trees.ts";
import { binary, runCli } from "../support/cli.ts";
import { engineSkip } from "../support/engines.ts";
import { makeImage, never, putImage, sha256, sourceOf, testStore } from "../support/images.ts";
import { registrySkip, startRegistry } from "../support/real_registry.ts";
import { tar } from "../support/tar.ts";
import { IMAGE, IMAGE_WITHOUT_BASH, TempFolder } from "../support/tasks.ts";

const runner = systemRunner();
const notRoot = thisUid() === 0 ? undefined : "needs root";

/** A Dockerfile that leaves behind what layers can hold: whiteouts, an emptied folder, links, owners, a FIFO. */
const DOCKERFILE = `FROM ${IMAGE}
RUN mkdir -p /d/e /gone && echo 1 > /d/e/f && echo 2 > /gone/x && echo 3 > /d/g && chmod 1777 /d
RUN rm -rf /gone /d/e && mkdir /d/e && echo 4 > /d/e/new && ln /d/g /d/h && ln -s ../d/g /l && mkfifo /pipe
RUN chown -R 33:34 /d/e && chmod 4711 /d/e/new && rm -f /d/g && touch -d @1000000000 /d/h
HEALTHCHECK CMD true
`;

/** Everything a tree shows, one line each: kind, mode, owner, size, time, target, content. Devices are never unpacked. */
function listing(folder: string): string[] {
  const format = "%P\\t%y\\t%m\\t%U:%G\\t%l\\n";
  const script = `cd "$1" && find . -mindepth 1 ! -type c ! -type b -printf '${format}' && ` +
    `find . -type f -printf '%P\\tsize %s\\ttime %T@\\tlinks %n\\n' && find . -type f -exec sha256sum {} +`;
  const { stdout, stderr, status } = spawnSync("sh", ["-c", script, "sh", folder], {
    encoding: "latin1",
    maxBuffer: 1 << 28,
  });
  assert.equal(status, 0, stderr);
  return stdout.split("\n").sort();
}

async function asOverlay(temp: TempFolder, image: StoredImage, look: (merged: string) => void): Promise<void> {
  const deps = { unpackDir: temp.join("trees"), clock: systemClock, runner };
  const { folders } = await layerTrees(image, testStore(temp.join("store")), "shift:0", deps, never);
  const merged = temp.join("merged");
  mkdirSync(merged);
  for (const [index, folder] of folders.entries()) execFileSync("ln", ["-s", folder, temp.join(String(index))]);
  const lower = [...folders.keys()].join(":") +
    (folders.length === 1 ? `:${(mkdirSync(temp.join("none")), "none")}` : "");
  execFileSync("mount", ["-t", "overlay", "overlay", "-o", `ro,userxattr,lowerdir=${lower}`, merged], {
    cwd: temp.path,
  });
  try {
    look(merged);
  } finally {
    execFileSync("umount", [merged]);
  }
}

for (const engine of ["docker", "podman"] as const) {
  const skip = engineSkip(engine) ?? notRoot;
  test(
    `${engine}: an image taken from it shows the same tree, file by file, and goes back under the same id`,
    { skip },
    async () => {
      using temp = new TempFolder("store");
      const name = `gym-harbor-store-test:${crypto.randomUUID().slice(0, 8)}`;
      writeFileSync(temp.join("Dockerfile"), DOCKERFILE);
      const build = engine === "podman" ? ["--format", "docker"] : [];
      execFileSync(engine, ["build", "-q", ...build, "-t", name, temp.path], {
        stdio: "pipe",
        env: { ...process.env, DOCKER_BUILDKIT: "0" },
      });
      try {
        const id = execFileSync(engine, ["image", "inspect", name, "--format", "{{.Id}}"], { encoding: "utf8" }).trim()
          .replace("sha256:", "");
        const store = testStore(temp.join("store"));
        const image = await importFromEngine(engine, name, store, { runner }, never);
        assert.equal(image.config.digest, `sha256:${id}`);
        await asOverlay(temp, image, (merged) => {
          const ours = listing(merged);
          assert.ok(!existsSync(join(merged, "gone")) && !existsSync(join(merged, "d/e/f")));
          const theirs = engineListing(engine, name, temp);
          // An export adds what the engine mounts into every container.
          const added =
            /^(?:[0-9a-f]{64} +\.\/)?(?:\.\/)?(\.dockerenv|dev|etc\/(hosts|hostname|resolv\.conf|mtab)|proc|run|sys)\b/;
          assert.deepEqual(ours.filter((line) => !added.test(line)), theirs.filter((line) => !added.test(line)));
        });
        const saved = await runCli([
          "images",
          "save",
          name,
          "--out",
          temp.join("carry"),
          "--image-store",
          store.folder,
        ]);
        assert.equal(saved.code, 0, saved.stderr);
        execFileSync(engine, ["rmi", "-f", name], { stdio: "pipe" });
        const archive = readdirSync(temp.join("carry")).find((one) => one.endsWith(".tar"))!;
        execFileSync(engine, ["load", "-i", temp.join("carry", archive)], { stdio: "pipe" });
        const back = execFileSync(engine, ["image", "inspect", name, "--format", "{{.Id}} {{.Config.Healthcheck}}"], {
          encoding: "utf8",
        });
        assert.equal(back.trim().replace("sha256:", "").slice(0, 64), id);
      } finally {
        spawnSync(engine, ["rmi", "-f", name]);
      }
    },
  );
}

function engineListing(engine: string, name: string, temp: TempFolder): string[] {
  const container = execFileSync(engine, ["create", name, "true"], { encoding: "utf8" }).trim().split("\n").at(-1)!;
  try {
    mkdirSync(temp.join("theirs"));
    execFileSync("sh", [
      "-c",
      `"$1" export "$2" | tar -xpf - --numeric-owner -C "$3"`,
      "sh",
      engine,
      container,
      temp.join("theirs"),
    ], { stdio: "pipe" });
    return listing(temp.join("theirs"));
  } finally {
    spawnSync(engine, ["rm", "-f", container]);
  }
}

for (const name of [IMAGE_WITHOUT_BASH, "python:3.12-slim"]) {
  const there = spawnSync("podman", ["image", "exists", name]).status === 0;
  const skip = engineSkip("podman") ?? notRoot ?? (there ? undefined : `podman has no ${name}`);
  test(`podman's own view of ${name} is ours`, { skip }, async () => {
    using temp = new TempFolder("store");
    const image = await importFromEngine("podman", name, testStore(temp.join("store")), { runner }, never);
    const mounted = execFileSync("podman", ["image", "mount", name], { encoding: "utf8" }).trim();
    try {
      await asOverlay(temp, image, (merged) => assert.deepEqual(listing(merged), listing(mounted)));
    } finally {
      spawnSync("podman", ["image", "unmount", name]);
    }
  });
}

/** Files that do not compress, so that a pull takes a while. */
const noise = (bytes: number): Uint8Array => {
  const parts: Uint8Array[] = [];
  for (let left = bytes; left > 0; left -= 65_536) {
    parts.push(crypto.getRandomValues(new Uint8Array(Math.min(left, 65_536))));
  }
  return new Uint8Array(Buffer.concat(parts));
};

const bigImage = () =>
  makeImage(
    [1, 2, 3].map((layer) =>
      tar(...Array.from({ length: 40 }, (_, index) =>
        ["file", `l${layer}/f${index}`, noise(200_000)] as ["file", string, Uint8Array]))
    ),
  );

/** Starts the program in a group of its own and kills all of it after `ms`. Answers whether it had ended by itself. */
function killedAfter(ms: number, args: string[], program = binary()): Promise<boolean> {
  const child = spawn(program, args, { stdio: "ignore", detached: true });
  const ended = new Promise<boolean>((resolve) => child.once("exit", (code) => resolve(code === 0)));
  setTimeout(() => {
    try {
      process.kill(-child.pid!, "SIGKILL");
    } catch {
      // it was faster
    }
  }, ms);
  return ended;
}

async function assertWhole(folder: string): Promise<void> {
  const store = testStore(folder, true);
  assert.deepEqual(await store.faults(), []);
  for (
    const name of existsSync(store.blobPath(`sha256:${"0".repeat(64)}`).slice(0, -65))
      ? readdirSync(join(folder, "blobs/sha256"))
      : []
  ) {
    assert.equal(await digestOfFile(join(folder, "blobs/sha256", name)), `sha256:${name}`);
  }
}

test("a pull that is killed again and again leaves only whole blobs, and the next one ends it", {
  skip: registrySkip(),
}, async () => {
  using temp = new TempFolder("store");
  await using registry = await startRegistry(temp.join("registry"));
  const image = bigImage();
  const source = testStore(temp.join("source"));
  await putImage(source, image, [`${registry.host}/t/big:1`]);
  await push(registry.host, image);
  const store = temp.join("store");
  const args = ["images", "pull", `${registry.host}/t/big:1`, "--image-store", store, "--quiet"];
  for (let round = 0; round < 12; round++) {
    const ended = await killedAfter(60 + Math.random() * 400, args);
    await assertWhole(store);
    if (ended) rmSync(store, { recursive: true });
  }
  const [one, two] = await Promise.all([runCli(args), runCli(args)]);
  assert.deepEqual([one.code, two.code], [0, 0], one.stderr + two.stderr);
  await assertWhole(store);
  assert.equal((await testStore(store).list())[0]!.manifest.digest, image.manifest.digest);
  assert.deepEqual(readdirSync(join(store, ".partial")), []);
});

/** Uploads blobs and manifest by hand, in single requests. */
async function push(host: string, image: ReturnType<typeof makeImage>): Promise<void> {
  const blobs = [...image.layers, { ...image.config, bytes: image.configBytes }];
  for (const { digest, bytes } of blobs) {
    const begun = await fetch(`http://${host}/v2/t/big/blobs/uploads/`, { method: "POST" });
    const to = new URL(begun.headers.get("location")!, `http://${host}`);
    to.searchParams.set("digest", digest);
    const put = await fetch(to, {
      method: "PUT",
      body: new Uint8Array(bytes),
      headers: { "content-type": "application/octet-stream" },
    });
    assert.equal(put.status, 201, await put.text());
  }
  const headers = { "content-type": image.manifest.mediaType };
  const put = await fetch(`http://${host}/v2/t/big/manifests/1`, {
    method: "PUT",
    body: new Uint8Array(image.manifestBytes),
    headers,
  });
  assert.equal(put.status, 201, await put.text());
}

test("an import that is killed again and again leaves no half image, and the next one ends it", async () => {
  using temp = new TempFolder("store");
  const image = bigImage();
  await putImage(testStore(temp.join("source")), image, ["big:1"]);
  assert.equal(
    (await runCli(["images", "save", "big:1", "--image-store", temp.join("source"), "--out", temp.join("carry")])).code,
    0,
  );
  const store = temp.join("store");
  const args = ["images", "load", temp.join("carry"), "--image-store", store];
  for (let round = 0; round < 10; round++) {
    const ended = await killedAfter(60 + Math.random() * 300, args);
    await assertWhole(store);
    if (ended) rmSync(store, { recursive: true });
  }
  const last = await runCli(args);
  assert.equal(last.code, 0, last.stderr);
  await assertWhole(store);
});

test("an unpacking that is killed again and again leaves whole trees only, and two at once share the next", async () => {
  using temp = new TempFolder("store");
  const image = await putImage(testStore(temp.join("store")), bigImage(), ["big:1"]);
  const place = temp.join("trees", `single-${thisUid()}`);
  const script = join(import.meta.dirname!, "../support/unpack_trees.ts");
  const args = ["run", "-A", script, temp.join("store"), "big:1", temp.join("trees"), `single:${thisUid()}`];
  const whole = (folders: string[]) => folders.every((folder) => readdirSync(folder).length === 1);
  for (let round = 0; round < 10; round++) {
    await killedAfter(250 + Math.random() * 900, args, process.execPath);
    const trees = existsSync(place) ? readdirSync(place).filter((name) => /^[0-9a-f]{24}$/.test(name)) : [];
    for (const name of trees) {
      const [layer] = readdirSync(join(place, name, "t"));
      assert.equal(readdirSync(join(place, name, "t", layer!)).length, 40, "a tree that has its name is whole");
    }
    if (trees.length === image.layers.length) rmSync(place, { recursive: true });
  }
  const both = await Promise.all([1, 2].map(() => runner.run([process.execPath, ...args])));
  const [one, two] = both.map(({ stdout }) => JSON.parse(stdout) as string[]);
  assert.deepEqual(one, two);
  assert.equal(one!.length, 3);
  assert.ok(whole(one!));
  assert.deepEqual(readdirSync(place).filter((name) => name.startsWith(".new-") || name.endsWith(".lock")), []);
});

/** What `unpack-layer` is asked by our own process, on its standard input. */
function unpackLayer(
  request: Record<string, unknown>,
  wrap: string[] = [],
): { status: number | null; stdout: string; stderr: string } {
  const [program, ...args] = [...wrap, binary(), "unpack-layer"];
  return spawnSync(program!, args, { input: JSON.stringify({ flat: false, below: [], ...request }), encoding: "utf8" });
}

function layerFile(temp: TempFolder, archive: Uint8Array, bytes: Uint8Array) {
  const path = temp.join(sha256(bytes).slice(7, 20));
  writeFileSync(path, bytes, { mode: 0o644 });
  return { path, digest: sha256(bytes), diffId: sha256(archive), size: bytes.length, readOnly: true };
}

test("the binary keeps names that are not UTF-8 byte for byte", () => {
  using temp = new TempFolder("store");
  const odd = "odd\xff\xfe";
  const archive = tar(["folder", `${odd}d`], ["file", `${odd}d/${odd}`, "x"], ["symlink", "link", `${odd}d/${odd}`], [
    "hardlink",
    `${odd}h`,
    `${odd}d/${odd}`,
  ]);
  mkdirSync(temp.join("root"));
  const layer = layerFile(temp, archive, gzipSync(archive));
  const { status, stderr } = unpackLayer({ root: temp.join("root"), owners: `single:${thisUid()}`, layers: [layer] });
  assert.equal(status, 0, stderr);
  const found = execFileSync("find", ["-P", ".", "-mindepth", "1", "-printf", "%P\\n"], {
    cwd: temp.join("root"),
    encoding: "latin1",
  });
  assert.deepEqual(found.trim().split("\n").sort(), ["link", `${odd}d`, `${odd}d/${odd}`, `${odd}h`]);
  assert.equal(readFileSync(temp.join("root/link"), "utf8"), "x");
});

test("the binary reads gzip of several members and zstd of several frames", () => {
  const archive = tar(["file", "a", noise(50_000)], ["file", "b", noise(50_000)]);
  const half = archive.length >> 1;
  const skipped = Buffer.from([0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3]);
  const packs: [string, Uint8Array][] = [
    ["gzip", Buffer.concat([gzipSync(archive.subarray(0, half)), gzipSync(archive.subarray(half))])],
    [
      "zstd",
      Buffer.concat([
        zstdCompressSync(archive.subarray(0, half)),
        skipped,
        zstdCompressSync(archive.subarray(half)),
        skipped,
      ]),
    ],
  ];
  for (const [name, bytes] of packs) {
    using temp = new TempFolder("store");
    mkdirSync(temp.join("root"));
    const { status, stdout, stderr } = unpackLayer({
      root: temp.join("root"),
      owners: `single:${thisUid()}`,
      layers: [layerFile(temp, archive, bytes)],
    });
    assert.equal(status, 0, stderr);
    assert.equal(JSON.parse(stdout).unpacked?.entries, 2, `${name}: ${stdout}`);
  }
});

const user = rangedUser();

test("a plain user's range: ids of the image are ids of his namespace", {
  skip: user === undefined && "no user here has a range of ids (/etc/subuid), or we are not root",
}, () => {
  const { uid, gid, start } = user!;
  const folder = mkdtempSync(join(tmpdir(), "gh-range-"));
  execFileSync("chown", [`${uid}:${gid}`, folder]);
  execFileSync("chmod", ["755", folder]);
  using temp = new TempFolder("store");
  try {
    const archive = tar(["folder", "d", "", { uid: 0 }], ["file", "d/f", "x", { uid: 33, gid: 33, mode: 0o4711 }], [
      "file",
      "d/.wh.x",
    ], ["fifo", "p", "", { uid: 5 }]);
    const layer = layerFile(temp, archive, gzipSync(archive));
    const as = ["setpriv", "--reuid", String(uid), "--regid", String(gid), "--clear-groups"];
    execFileSync(as[0]!, [...as.slice(1), "mkdir", join(folder, "root"), join(folder, "below")]);
    execFileSync(as[0]!, [...as.slice(1), "sh", "-c", `mkdir ${folder}/below/d && touch ${folder}/below/d/x`]);
    const inside = [...as, "unshare", "--user", "--map-root-user", "--map-users=auto", "--map-groups=auto"];
    const below = [{ folder: join(folder, "below"), opaque: [] }];
    const { status, stdout, stderr } = unpackLayer({
      root: join(folder, "root"),
      owners: `range:${start}`,
      layers: [layer],
      below,
    }, inside);
    assert.equal(status, 0, stderr);
    assert.equal(JSON.parse(stdout).unpacked?.entries, 4, stdout);
    const shown = execFileSync(inside[0]!, [
      ...inside.slice(1),
      "find",
      join(folder, "root"),
      "-mindepth",
      "1",
      "-printf",
      "%P %y %m %U\\n",
    ], { encoding: "utf8" });
    assert.deepEqual(shown.trim().split("\n").sort(), ["d d 755 0", "d/f f 4711 33", "d/x c 0 0", "p p 644 5"]);
    assert.match(
      execFileSync("stat", ["-c", "%u", join(folder, "root/d/f")], { encoding: "utf8" }),
      /^1\d\d+$|^\d{5,}$/m,
    );
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

/** The first user of this machine whom newuidmap gives ids. */
function rangedUser(): { uid: number; gid: number; start: number } | undefined {
  if (thisUid() !== 0 || !existsSync("/etc/subuid")) return undefined;
  for (const line of readFileSync("/etc/subuid", "utf8").split("\n")) {
    const [name, start] = line.split(":");
    const passwd = spawnSync("getent", ["passwd", name ?? ""], { encoding: "utf8" }).stdout.split(":");
    if (!name || !start || passwd.length < 4) continue;
    return { uid: Number(passwd[2]), gid: Number(passwd[3]), start: Number(start) };
  }
  return undefined;
}

/** A small file system of the test's own. */
function smallDisk(temp: TempFolder, mebibytes: number): Disposable & { path: string } {
  const path = temp.join("disk");
  mkdirSync(path);
  execFileSync("truncate", ["-s", `${mebibytes}M`, temp.join("disk.img")]);
  execFileSync("mkfs.ext4", ["-q", "-F", temp.join("disk.img")], { stdio: "pipe" });
  execFileSync("mount", ["-o", "loop", temp.join("disk.img"), path]);
  return { path, [Symbol.dispose]: () => execFileSync("umount", [path]) };
}

const noLoop = notRoot ?? (existsSync("/dev/loop-control") ? undefined : "no loop devices");

test(
  "E16: a disk that fills up while a layer is unpacked leaves no tree and no half of one",
  { skip: noLoop },
  async () => {
    using temp = new TempFolder("store");
    using disk = smallDisk(temp, 16);
    const store = testStore(temp.join("store"));
    const image = await putImage(store, makeImage([tar(["file", "big", noise(30 << 20)])]), ["big:1"]);
    const deps = { unpackDir: join(disk.path, "trees"), clock: systemClock, runner };
    await assert.rejects(layerTrees(image, store, "shift:0", deps, never), (error: unknown) => {
      assert.ok(error instanceof HarborError && isDiskFull(error), String(error));
      assert.match(error.message, /no space left/);
      return true;
    });
    const left = readdirSync(join(disk.path, "trees/shift-0"));
    assert.deepEqual(left.filter((name) => name !== ".leases"), []);
  },
);

test(
  "E16: a disk that fills up while a blob comes keeps what came, and goes on when there is room",
  { skip: noLoop },
  async () => {
    using temp = new TempFolder("store");
    using disk = smallDisk(temp, 16);
    const bytes = noise(12 << 20);
    const blob = { mediaType: "", digest: sha256(bytes), size: bytes.length };
    writeFileSync(join(disk.path, "ballast"), new Uint8Array(8 << 20));
    const store = testStore(join(disk.path, "store"));
    const pieces = (from: number) =>
      Promise.resolve((async function* () {
        for (let at = from; at < bytes.length; at += 1 << 20) {
          yield await Promise.resolve(bytes.subarray(at, at + (1 << 20)));
        }
      })());
    await assert.rejects(store.take(blob, pieces, never), (error: unknown) => {
      assert.ok(error instanceof HarborError && isDiskFull(error), String(error));
      assert.match(error.hint!, /images gc|--image-store/);
      return true;
    });
    assert.equal(store.has(blob.digest), false);
    rmSync(join(disk.path, "ballast"));
    const offsets: number[] = [];
    await store.take(blob, (offset) => (offsets.push(offset), sourceOf(bytes)(offset)), never);
    assert.ok(offsets[0]! > 0, "the first part is not fetched again");
    assert.equal(await digestOfFile(store.blobPath(blob.digest)), blob.digest);
  },
);

test("E10: on a disk without attributes an image becomes one flat tree", { skip: notRoot }, async () => {
  using temp = new TempFolder("store");
  mkdirSync(temp.join("plain"));
  const mounted = spawnSync("mount", ["-t", "ramfs", "ramfs", temp.join("plain")]);
  assert.equal(mounted.status, 0);
  try {
    const store = testStore(temp.join("store"));
    const layers = [
      tar(["file", "d/gone", "x"], ["file", "d/kept", "x"]),
      tar(["file", "d/.wh.gone"], ["file", "o/.wh..wh..opq"]),
    ];
    const image = await putImage(store, makeImage(layers), ["flat:1"]);
    const deps = { unpackDir: temp.join("plain", "trees"), clock: systemClock, runner };
    const { folders, notes } = await layerTrees(image, store, "shift:0", deps, never);
    assert.equal(folders.length, 1);
    assert.match(notes.join(), /one folder/);
    assert.deepEqual(readdirSync(join(folders[0]!, "d")), ["kept"]);
    assert.deepEqual((await layerTrees(image, store, "shift:0", deps, never)).folders, folders);
  } finally {
    execFileSync("umount", [temp.join("plain")]);
  }
});

test("a store on read-only media can be used", { skip: notRoot }, async () => {
  using temp = new TempFolder("store");
  await putImage(testStore(temp.join("store")), makeImage([tar(["file", "a", "x"])]), ["ro:1"]);
  execFileSync("mount", ["--bind", temp.join("store"), temp.join("store")]);
  execFileSync("mount", ["-o", "remount,ro,bind", temp.join("store")]);
  try {
    const store = testStore(temp.join("store"));
    assert.equal(store.readOnly, true);
    const image = (await store.find("ro:1", "linux/amd64"))!;
    const deps = { unpackDir: temp.join("trees"), clock: systemClock, runner };
    assert.equal((await layerTrees(image, store, "shift:0", deps, never)).folders.length, 1);
    const listed = await runCli(["images", "list", "--image-store", temp.join("store"), "--json"]);
    assert.deepEqual(JSON.parse(listed.stdout).names, ["docker.io/library/ro:1"]);
    const gc = await runCli(["images", "gc", "--older-than", "0s", "--image-store", temp.join("store")]);
    assert.equal(gc.code, 0, gc.stderr);
  } finally {
    execFileSync("umount", [temp.join("store")]);
  }
});
