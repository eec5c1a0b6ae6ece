import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { execFileSync } from "node:child_process";
import { existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { gzipSync, zstdCompressSync } from "node:zlib";
import { HarborError } from "../../../lib/errors.ts";
import { systemRunner } from "../../../lib/runtime/runner.ts";
import { thisUid } from "../../../lib/runtime/user.ts";
import { type LayerBlob, unpackFlat, unpackLayer } from "../../../lib/unpack/layer.ts";
import type { OwnerMap } from "../../../lib/unpack/owners.ts";
import { bytesOf, never, sha256 } from "../../support/images.ts";
import { type Line, tar } from "../../support/tar.ts";
import { TempFolder } from "../../support/tasks.ts";

const OWN: OwnerMap = { kind: "single", uid: thisUid() };
const runner = systemRunner();

/** A layer's blob on disk. */
function blob(
  temp: TempFolder,
  archive: Uint8Array,
  pack = (bytes: Uint8Array): Uint8Array => gzipSync(bytes),
): LayerBlob {
  const bytes = pack(archive);
  const path = temp.join(sha256(bytes).slice(7, 19));
  writeFileSync(path, bytes);
  return { path, digest: sha256(bytes), diffId: sha256(archive), size: bytes.length, readOnly: true };
}

async function unpack(temp: TempFolder, lines: Line[], below = (_path: string) => true, owners = OWN) {
  const root = temp.join("root");
  mkdirSync(root);
  const report = await unpackLayer(blob(temp, tar(...lines)), root, { owners, runner, below }, never);
  return { root, report };
}

const mode = (path: string): string => (lstatSync(path).mode & 0o7777).toString(8);

for (
  const [name, pack] of [["plain", (bytes: Uint8Array) => bytes], ["gzip", gzipSync], [
    "zstd",
    zstdCompressSync,
  ]] as const
) {
  test(`unpackLayer() makes files, folders and links of a ${name} layer with mode and time`, async () => {
    using temp = new TempFolder("unpack");
    const archive = tar(
      ["folder", "./", "", { mode: 0o711, mtime: 5 }],
      ["folder", "bin/", "", { mode: 0o555, mtime: 1_700_000_000 }],
      ["file", "bin/tool", "#!/bin/sh\n", { mode: 0o4755, mtime: 1_600_000_000 }],
      ["symlink", "bin/sh", "/bin/tool", { mtime: 1_500_000_000 }],
      ["hardlink", "bin/again", "bin/tool"],
      ["file", "empty", ""],
      ["folder", "tmp", "", { mode: 0o1777 }],
      ["file", `${"long/".repeat(40)}name`, "x".repeat(2000)],
    );
    const root = temp.join("root");
    mkdirSync(root);
    const made = await unpackLayer(blob(temp, archive, pack), root, { owners: OWN, runner, below: () => true }, never);
    assert.equal(made.entries, 8);
    assert.equal(mode(root), "711");
    assert.equal(mode(`${root}/bin`), "555");
    assert.equal(mode(`${root}/bin/tool`), "4755");
    assert.equal(mode(`${root}/tmp`), "1777");
    assert.equal(mode(`${root}/long`), "755", "a folder that the layer does not list");
    assert.equal(lstatSync(`${root}/bin`).mtimeMs, 1_700_000_000_000);
    assert.equal(lstatSync(`${root}/bin/tool`).mtimeMs, 1_600_000_000_000);
    assert.equal(lstatSync(`${root}/bin/sh`).mtimeMs, 1_500_000_000_000);
    assert.equal(readlinkSync(`${root}/bin/sh`), "/bin/tool");
    assert.equal(lstatSync(`${root}/bin/again`).ino, lstatSync(`${root}/bin/tool`).ino);
    assert.equal(readFileSync(`${root}/${"long/".repeat(40)}name`, "utf8").length, 2000);
  });
}

const HOSTILE: [name: string, lines: Line[], says: RegExp][] = [
  ["a name that climbs out", [["file", "a/../../evil", "x"]], /'a\/\.\.\/\.\.\/evil': its name leads out/],
  ["an absolute name that climbs out", [["file", "/../EVIL/x", "x"]], /leads out/],
  [
    "a file through an absolute link",
    [["symlink", "x", "/EVIL"], ["file", "x/pwn", "x"]],
    /behind the link 'x' to '.*EVIL'/,
  ],
  ["a file through a relative link", [["symlink", "x", "../EVIL"], ["file", "x/pwn", "x"]], /behind the link 'x'/],
  [
    "a file through two links",
    [["symlink", "x", "y"], ["symlink", "y", "/EVIL"], ["file", "x/pwn", "x"]],
    /behind the link/,
  ],
  ["a folder through a link", [["symlink", "x", "/EVIL"], ["folder", "x/pwn", ""]], /behind the link/],
  ["a link through a link", [["symlink", "x", "/EVIL"], ["symlink", "x/pwn", "/"]], /behind the link/],
  ["links in a circle", [["symlink", "a", "b"], ["symlink", "b", "a"], ["file", "a/x", "x"]], /behind the link 'a'/],
  [
    "a hard link to nothing",
    [["hardlink", "pwn", "no/such"]],
    /hard link to 'no\/such', which this layer does not have/,
  ],
  ["a hard link out of the layer", [["hardlink", "pwn", "../../EVIL/there"]], /the target of its link leads out/],
  ["a hard link to a file of this machine", [["hardlink", "pwn", "/EVIL/there"]], /which this layer does not have/],
  [
    "a hard link through a link",
    [["symlink", "x", "/EVIL"], ["hardlink", "pwn", "x/there"]],
    /which this layer does not have/,
  ],
  ["a hard link to a folder", [["folder", "d"], ["hardlink", "pwn", "d"]], /which this layer does not have/],
  ["a hard link to the top", [["hardlink", "pwn", "./"]], /which this layer does not have/],
  ["a whiteout of ..", [["file", ".wh..."]], /hides '\.\.', which is no name/],
  ["a whiteout of nothing", [["file", "a/.wh."]], /hides '', which is no name/],
  ["a whiteout through a link", [["symlink", "x", "/EVIL"], ["file", "x/.wh.there"]], /behind the link/],
  ["an opaque mark through a link", [["symlink", "x", "/EVIL"], ["file", "x/.wh..wh..opq"]], /behind the link/],
  ["a file where a folder should be", [["file", "x", "x"], ["file", "x/y", "x"]], /'x' is a file, not a folder/],
  ["a file in place of the top", [["file", "./", "x", { type: "2" }]], /replace the layer's top/],
  ["a kind of entry that is none", [["file", "x", "", { type: "Z" }]], /kind that layers do not have/],
  ["a name that is too long", [["file", "n".repeat(300), "x"]], /the name is too long/],
];
for (const [name, lines, says] of HOSTILE) {
  for (const flat of [false, true]) {
    test(`a layer with ${name} is refused${flat ? " in a flat tree too" : ""} and touches nothing outside`, async () => {
      using temp = new TempFolder("hostile");
      const evil = temp.join("EVIL");
      mkdirSync(evil);
      writeFileSync(`${evil}/there`, "mine");
      const aimed = lines.map(([kind, path, content, more]): Line => {
        const aim = (text: string) => text.replace("/EVIL", evil).replace("../EVIL", "../EVIL");
        return [kind, aim(path), typeof content === "string" ? aim(content) : content, more];
      });
      const root = temp.join("root");
      mkdirSync(root);
      const layer = blob(temp, tar(...aimed));
      const made = flat
        ? unpackFlat([layer], root, { owners: OWN, runner }, never)
        : unpackLayer(layer, root, { owners: OWN, runner, below: () => true }, never);
      await assert.rejects(made, (error: unknown) => {
        assert.ok(error instanceof HarborError, String(error));
        assert.equal(error.code, "image.failed");
        assert.match(error.message, says);
        return true;
      });
      assert.equal(readFileSync(`${evil}/there`, "utf8"), "mine");
      assert.equal(lstatSync(`${evil}/there`).nlink, 1);
      assert.equal(existsSync(`${evil}/pwn`), false);
    });
  }
}

for (const flat of [false, true]) {
  test(`absolute names count from the layer's top${flat ? ", in a flat tree too" : ""}, as for docker and podman`, async () => {
    using temp = new TempFolder("absolute");
    const evil = temp.join("EVIL");
    const root = temp.join("root");
    for (const folder of [evil, root]) mkdirSync(folder);
    const layer = blob(temp, tar(["file", `${evil}/x`, "x"], ["hardlink", "//again", `${evil}/x`]));
    if (flat) await unpackFlat([layer], root, { owners: OWN, runner }, never);
    else await unpackLayer(layer, root, { owners: OWN, runner, below: () => true }, never);
    assert.equal(readFileSync(`${root}${evil}/x`, "utf8"), "x");
    assert.equal(lstatSync(`${root}/again`).nlink, 2);
    assert.deepEqual(readdirSync(evil), []);
  });
}

test("links inside the layer lead where they say, from its top", async () => {
  using temp = new TempFolder("unpack");
  const { root } = await unpack(temp, [
    ["folder", "usr/lib"],
    ["folder", "run"],
    ["symlink", "lib", "usr/lib"],
    ["symlink", "var/run", "/run"],
    ["symlink", "deep/er/up", "../../lib"],
    ["file", "lib/a", "a"],
    ["file", "var/run/b", "b"],
    ["file", "deep/er/up/c", "c"],
    ["hardlink", "d", "lib/a"],
  ]);
  assert.equal(readFileSync(`${root}/usr/lib/a`, "utf8"), "a");
  assert.equal(readFileSync(`${root}/run/b`, "utf8"), "b");
  assert.equal(readFileSync(`${root}/usr/lib/c`, "utf8"), "c");
  assert.equal(readlinkSync(`${root}/var/run`), "/run");
  assert.equal(lstatSync(`${root}/d`).nlink, 2);
});

test("a later entry of a name takes the place of an earlier one, whatever both are", async () => {
  using temp = new TempFolder("unpack");
  const { root } = await unpack(temp, [
    ["file", "a", "first"],
    ["file", "a", "second"],
    ["folder", "b/c"],
    ["file", "b/c/d", "x"],
    ["file", "b", "file now"],
    ["symlink", "e", "/etc"],
    ["folder", "e"],
    ["file", "e/passwd", "ours"],
    ["file", "f", "x"],
    ["symlink", "f", "a"],
  ]);
  assert.equal(readFileSync(`${root}/a`, "utf8"), "second");
  assert.equal(readFileSync(`${root}/b`, "utf8"), "file now");
  assert.equal(readFileSync(`${root}/e/passwd`, "utf8"), "ours");
  assert.equal(readlinkSync(`${root}/f`), "a");
});

test("whiteouts, opaque folders and FIFOs are made; whiteouts that hide nothing are left out", async () => {
  using temp = new TempFolder("unpack");
  const asked: string[] = [];
  const { root, report } = await unpack(temp, [
    ["folder", "d"],
    ["file", "d/.wh.gone"],
    ["file", "d/.wh.never-was"],
    ["folder", "o"],
    ["file", "o/.wh..wh..opq"],
    ["file", "o/.wh.x"],
    ["file", "o/kept", "x"],
    ["file", ".wh.anew"],
    ["folder", "anew"],
    ["file", ".wh..wh.plnk", "aufs"],
    ["fifo", "pipe", "", { mode: 0o600 }],
    ["device", "dev/null"],
  ], (path) => (asked.push(path), path === "d/gone"));
  const gone = lstatSync(`${root}/d/gone`);
  assert.ok(gone.isCharacterDevice() && gone.rdev === 0);
  for (const absent of ["d/never-was", "o/x", ".wh..wh.plnk", "dev/null", "o/.wh..wh..opq"]) {
    assert.equal(lstatSync(`${root}/${absent}`, { throwIfNoEntry: false }), undefined, absent);
  }
  assert.deepEqual(asked, ["d/gone", "d/never-was"]);
  assert.ok(lstatSync(`${root}/pipe`).isFIFO());
  assert.equal(mode(`${root}/pipe`), "600");
  assert.deepEqual(report.opaque.sort(), ["anew", "o"]);
  assert.deepEqual([report.hides, report.devices], [true, 1]);
  const back = execFileSync("tar", ["--xattrs", "--xattrs-include=*", "-C", root, "-cf", "-", "o", "anew"]).toString(
    "latin1",
  );
  assert.equal(back.split("SCHILY.xattr.user.overlay.opaque=y").length, 3);
});

test("capabilities and a user's attributes are kept, the overlay's own and others are not", async () => {
  using temp = new TempFolder("unpack");
  const capability = Buffer.from("0100000200200000000000000000000000000000", "hex").toString("latin1");
  const { root, report } = await unpack(temp, [
    ["file", "ping", "PING", {
      mode: 0o755,
      mtime: 1_600_000_000,
      xattrs: {
        "security.capability": capability,
        "user.note": "n\n\0x",
        "user.overlay.redirect": "/etc",
        "security.selinux": "s",
      },
    }],
    ["hardlink", "pong", "ping"],
    ["folder", "d", "", { mode: 0o700, xattrs: { "user.overlay.opaque": "y", "user.d": "1" } }],
  ]);
  const back = execFileSync("tar", ["--xattrs", "--xattrs-include=*", "-C", root, "-cf", "-", "ping", "d"]).toString(
    "latin1",
  );
  assert.match(back, /SCHILY\.xattr\.security\.capability=/);
  assert.match(back, /SCHILY\.xattr\.user\.d=1/);
  assert.ok(back.includes("user.note=n\n\0x"));
  assert.doesNotMatch(back, /overlay|selinux/);
  assert.equal(report.attributesLeftOut, 3);
  assert.equal(readFileSync(`${root}/pong`, "utf8"), "PING");
  assert.equal(lstatSync(`${root}/ping`).nlink, 2);
  assert.equal(mode(`${root}/ping`), "755");
  assert.equal(mode(`${root}/d`), "700");
  assert.equal(lstatSync(`${root}/ping`).mtimeMs, 1_600_000_000_000);
});

test("where all ids are one, only root's set-uid programs stay so", async () => {
  using temp = new TempFolder("unpack");
  const { root } = await unpack(temp, [
    ["file", "su", "", { mode: 0o6755 }],
    ["file", "crontab", "", { mode: 0o6755, uid: 0, gid: 42 }],
    ["file", "other", "", { mode: 0o6755, uid: 7, gid: 0 }],
  ]);
  assert.deepEqual(["su", "crontab", "other"].map((name) => mode(`${root}/${name}`)), ["6755", "4755", "2755"]);
});

test(
  "a shifted map gives files, folders, links and FIFOs to its ids",
  { skip: thisUid() !== 0 && "needs root" },
  async () => {
    using temp = new TempFolder("unpack");
    const { root } = await unpack(
      temp,
      [
        ["folder", "d", "", { uid: 0, gid: 0 }],
        ["file", "d/f", "x", { uid: 33, gid: 34, mode: 0o4711 }],
        ["symlink", "d/l", "f", { uid: 1000 }],
        ["fifo", "d/p", "", { uid: 5, gid: 5 }],
        ["file", "d/beyond", "x", { uid: 200_000 }],
        ["file", "d/late", "x", { mtime: 2 ** 40 }],
        ["file", "d/.wh.gone"],
      ],
      undefined,
      { kind: "shift", start: 2_000_000_000 },
    );
    const owner = (path: string) => [lstatSync(`${root}/${path}`).uid - 2e9, lstatSync(`${root}/${path}`).gid - 2e9];
    assert.deepEqual(owner("d"), [0, 0]);
    assert.deepEqual(owner("d/f"), [33, 34]);
    assert.deepEqual(owner("d/l"), [1000, 0]);
    assert.deepEqual(owner("d/p"), [5, 5]);
    assert.deepEqual(owner("d/beyond"), [65_534, 0]);
    assert.equal(mode(`${root}/d/f`), "4711");
  },
);

test("in a flat tree whiteouts remove what layers below brought, and nothing of the layer itself", async () => {
  using temp = new TempFolder("flat");
  const root = temp.join("root");
  mkdirSync(root);
  const lower = tar(
    ["file", "gone", "x"],
    ["file", "d/gone", "x"],
    ["file", "d/kept", "x"],
    ["file", "o/gone/x", "x"],
    ["file", "anew/old", "x"],
    ["symlink", "lib", "/etc"],
    ["file", "f", "lower"],
  );
  const upper = tar(
    ["file", ".wh.gone"],
    ["file", "d/.wh.gone"],
    ["file", "o/here", "x"],
    ["file", "o/.wh..wh..opq"],
    ["folder", "anew"],
    ["file", ".wh.anew"],
    ["file", "lib/own", "x"],
    ["file", "f", "upper"],
    ["file", ".wh.f"],
  );
  await unpackFlat([blob(temp, lower), blob(temp, upper)], root, { owners: OWN, runner }, never);
  const found = execFileSync("find", [".", "-type", "f", "-o", "-type", "l"], { cwd: root }).toString().trim().split(
    "\n",
  );
  assert.deepEqual(found.sort(), ["./d/kept", "./f", "./lib/own", "./o/here"]);
  assert.equal(readFileSync(`${root}/f`, "utf8"), "upper");
  assert.ok(existsSync(`${root}/anew`));
});

const DAMAGED: [name: string, harm: (layer: LayerBlob) => void, says: RegExp][] = [
  ["a flipped byte", ({ path }) => flip(path, 40), /is damaged: its bytes are sha256:/],
  ["a flipped byte in the middle of a file", ({ path }) => flip(path, 5000), /is damaged/],
  ["a missing end", ({ path }) => writeFileSync(path, readFileSync(path).subarray(0, 2000)), /is damaged/],
  ["an HTML page", ({ path }) => writeFileSync(path, "<html>"), /is damaged/],
  [
    "another diff id",
    (layer) => layer.diffId = `sha256:${"0".repeat(64)}`,
    /its contents have the digest .* says sha256:0000/,
  ],
  ["no blob at all", (layer) => layer.path += ".gone", /is missing/],
];
for (const [name, harm, says] of DAMAGED) {
  test(`a layer with ${name} is refused`, async () => {
    using temp = new TempFolder("damaged");
    const noise = crypto.getRandomValues(new Uint8Array(20_000));
    const layer = blob(temp, tar(["file", "noise", noise], ["file", "b", "x"]));
    harm(layer);
    mkdirSync(temp.join("root"));
    const made = unpackLayer(layer, temp.join("root"), { owners: OWN, runner, below: () => true }, never);
    await assert.rejects(made, says);
  });
}

function flip(path: string, at: number): void {
  const bytes = readFileSync(path);
  bytes[at]! ^= 1;
  writeFileSync(path, bytes);
}

test("a layer that is no archive although its digest is right says so", async () => {
  using temp = new TempFolder("damaged");
  mkdirSync(temp.join("root"));
  for (
    const [archive, says] of [[
      "<html>".repeat(200),
      /not a usable tar archive: a header has a wrong checksum/,
    ]] as const
  ) {
    const made = unpackLayer(blob(temp, bytesOf(archive)), temp.join("root"), {
      owners: OWN,
      runner,
      below: () => true,
    }, never);
    await assert.rejects(made, says);
  }
});
