/** The decisions of the sandbox on image layers: names, mounts, places, layers that are packed again. */
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Buffer } from "node:buffer";
import { after, test } from "node:test";
import { HarborError } from "../../lib/errors.ts";
import { headerBlocks, type NewHeader, padding, type TarHeader } from "../../lib/unpack/tar_header.ts";
import { TarReader } from "../../lib/unpack/tar_reader.ts";
import { type FindDeps, shownName, whyNotPulled } from "../../providers/_layers_find.ts";
import { etcFiles, planLayers } from "../../providers/_layers_layout.ts";
import { placeMounts, resolveInTrees } from "../../providers/_layers_mounts.ts";
import { LayerEntries } from "../../providers/_layers_pack.ts";
import { rangeStart } from "../../providers/_namespace_machine.ts";
import { parseLdd } from "../../providers/_namespace_tools.ts";

const folder = mkdtempSync(join(tmpdir(), "gh-layers-"));
after(() => rmSync(folder, { recursive: true }));

test("parseLdd() finds each program's loader and libraries, for glibc, musl and static programs", () => {
  const found = parseLdd(`/usr/bin/bash:
\tlinux-vdso.so.1 (0x00007ffe)
\tlibtinfo.so.6 => /lib/x86_64-linux-gnu/libtinfo.so.6 (0x1)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x2)
\t/lib64/ld-linux-x86-64.so.2 (0x3)
/bin/busybox:
\tnot a dynamic executable
/usr/bin/env:
\t/lib/ld-musl-x86_64.so.1 (0x1)
\tlibc.musl-x86_64.so.1 => /lib/ld-musl-x86_64.so.1 (0x1)
`);
  assert.equal(found.get("/usr/bin/bash")?.loader, "/lib64/ld-linux-x86-64.so.2");
  assert.deepEqual([...found.get("/usr/bin/bash")!.libraries.keys()], ["libtinfo.so.6", "libc.so.6"]);
  assert.deepEqual(found.get("/bin/busybox"), { loader: undefined, libraries: new Map() });
  assert.equal(found.get("/usr/bin/env")?.loader, "/lib/ld-musl-x86_64.so.1");
});

test("rangeStart() is where the ids of a range begin, and nothing for one id", () => {
  assert.equal(rangeStart("         0       1001          1\n         1     100000      65535\n"), 100000);
  assert.equal(rangeStart("         0       1001          1\n"), undefined);
});

const MOUNTS = {
  base: "/run/b",
  control: "/run/c",
  tools: "/run/t",
  none: "/run/none",
  others: [],
  sysfs: true,
  ttyGroup: true,
  shmBytes: 1024,
  procEntries: ["sys", "kcore", "acpi"],
  sysPaths: [],
};

test("planLayers() holds 127 layers in the 4,096 bytes of mount options, and nothing of this machine", () => {
  const { fstab } = planLayers({ ...MOUNTS, layers: 128 });
  const overlay = fstab.split("\n").find((line) => line.startsWith("overlay "))!;
  assert.ok(overlay.split(" ")[3]!.length < 4096);
  assert.match(overlay, /userxattr.*lowerdir=l\/0:l\/1:.*:l\/127,upperdir/);
  const sources = fstab.split("\n").filter(Boolean).map((line) => line.split(" ")[0]!);
  for (const source of sources) assert.match(source, /^(overlay|tmpfs|devpts|proc|sysfs|\/run\/.*|\/dev\/\w+)$/);
  assert.match(fstab, /\/box\/proc\/sys none bind,ro/);
  assert.match(fstab, /\/dev\/null \/run\/b\/tree\/root\/box\/proc\/kcore/);
});

test("etcFiles() names the sandbox, and a member's neighbours instead of a loopback name", () => {
  assert.match(etcFiles("no-network", "box").hosts!, /127\.0\.1\.1\tbox\n$/);
  const member = etcFiles("public", "db", ["10.0.0.2\tdb store"]);
  assert.match(member.hosts!, /10\.0\.0\.2\tdb store\n$/);
  assert.doesNotMatch(member.hosts!, /127\.0\.1\.1/);
  assert.doesNotMatch(member["resolv.conf"]!, /^nameserver/m);
});

const PIN = "a".repeat(64);
for (
  const [name, names, shown] of [
    [
      "debian:12",
      [`docker.io/library/debian@sha256:${PIN}`, "docker.io/library/debian:12"],
      `library/debian@sha256:${PIN}`,
    ],
    ["debian:12", [`docker.io/other/debian@sha256:${PIN}`], "debian:12"],
    ["reg:5000/a/b:1", [`reg:5000/a/b@sha256:${PIN}`], `reg:5000/a/b@sha256:${PIN}`],
    [`debian@sha256:${PIN}`, [], `debian@sha256:${PIN}`],
    ["hb__0a", [], "hb__0a"],
  ] as const
) {
  test(`shownName(${name}) of ${names.length} names is ${shown}`, () => {
    assert.equal(shownName(name, { names: [...names] }), shown);
  });
}

test("whyNotPulled() says what forbids a pull", () => {
  const deps = {
    store: { readOnly: false },
    registry: {},
    offline: false,
    platform: "linux/amd64",
  } as unknown as FindDeps;
  assert.equal(whyNotPulled("debian", deps), undefined);
  assert.match(whyNotPulled("debian", { ...deps, offline: true })!, /--offline/);
  assert.match(whyNotPulled("hb__0a", deps)!, /built on this machine/);
  assert.match(whyNotPulled("debian", { ...deps, registry: undefined })!, /no store/);
  const readOnly = { ...deps, store: { readOnly: true, folder: "/media/x" } } as unknown as FindDeps;
  assert.match(whyNotPulled("debian", readOnly)!, /\/media\/x cannot be written/);
});

/** Two trees, topmost first: links out of the image, into it and in a circle. */
function trees(): string[] {
  const [top, low] = ["top", "low"].map((name) => join(mkdtempSync(join(folder, "t-")), name)) as [string, string];
  mkdirSync(join(top, "srv"), { recursive: true });
  mkdirSync(join(low, "usr/lib"), { recursive: true });
  mkdirSync(join(low, "srv/data"), { recursive: true });
  writeFileSync(join(low, "usr/lib/conf"), "");
  symlinkSync("usr/lib", join(low, "lib"));
  symlinkSync("/etc", join(top, "out"));
  symlinkSync("../../../../etc", join(top, "up"));
  symlinkSync("circle", join(top, "circle"));
  return [top, low];
}

for (
  const [path, real] of [
    ["/srv/data", "/srv/data"],
    ["/lib/conf", "/usr/lib/conf"],
    ["/out/passwd", "/etc/passwd"],
    ["/up/x", "/etc/x"],
    ["/a/../srv/./data/", "/srv/data"],
    ["/../../x", "/x"],
  ] as const
) {
  test(`resolveInTrees(${path}) is ${real} inside the image`, () => assert.equal(resolveInTrees(trees(), path), real));
}

test("resolveInTrees() refuses a circle of links", () => {
  assert.throws(() => resolveInTrees(trees(), "/circle/x"), (error) => error instanceof HarborError);
});

test("placeMounts() makes what is missing in the upper folder alone, and names what cannot be mounted over", () => {
  const lower = trees();
  const upper = mkdtempSync(join(folder, "up-"));
  const source = join(folder, "source");
  mkdirSync(source);
  const lines = placeMounts(
    [
      { kind: "bind", source, target: "/srv/data", readOnly: true },
      { kind: "bind", source, target: "/lib/new/deep", readOnly: false },
      { kind: "tmpfs", target: "/quick", options: "size=1m" },
    ],
    lower,
    upper,
    "/root",
  );
  assert.deepEqual(lines.map((line) => line.split(" ").slice(1, 4)), [
    ["/root/srv/data", "none", "bind,nodev,nosuid,ro"],
    ["/root/usr/lib/new/deep", "none", "bind,nodev,nosuid"],
    ["/root/quick", "tmpfs", "nosuid,nodev,size=1m"],
  ]);
  assert.deepEqual(readdirSync(upper).sort(), ["quick", "usr"]);
  const onFile = { kind: "bind", source, target: "/usr/lib/conf", readOnly: true } as const;
  assert.throws(() => placeMounts([onFile], lower, upper, "/root"), /the image has a file there/);
});

/** What a layer's reader finds in the entries that come out. */
function packed(headers: (NewHeader & { content?: string })[], etcMode: number | undefined = 0o755) {
  const out: Buffer[] = [];
  const entries = new LayerEntries((bytes) => out.push(bytes), etcMode);
  const reader = new TarReader(entries, "t");
  for (const { content = "", ...header } of headers) {
    const bytes = Buffer.from(content);
    reader.push(Buffer.concat([headerBlocks({ ...header, size: bytes.length }), bytes, padding(bytes.length)]));
  }
  const found: Pick<TarHeader, "name" | "type" | "xattrs" | "linkname">[] = [];
  const told = new TarReader({
    entry: ({ name, type, xattrs, linkname }) => void found.push({ name, type, xattrs, linkname }),
    data: () => {},
    end: () => {},
  }, "t");
  told.push(Buffer.concat(out));
  return found;
}
const namesOf = (found: { name: string }[]) => found.map(({ name }) => name);

test("LayerEntries turns whiteouts and opaque folders back, and takes overlay's own marks off", () => {
  const found = packed([
    { name: "./", type: "5" },
    { name: "./a/", type: "5", xattrs: { "user.overlay.opaque": "y", "user.mine": "v" } },
    { name: "./a/gone", type: "3" },
    { name: "./a/file", content: "data", xattrs: { "user.overlay.origin": "x" } },
    { name: "./a/hard", type: "1", linkname: "./a/file" },
    { name: "./top", type: "3" },
  ]);
  assert.deepEqual(namesOf(found), ["a/", "a/.wh..wh..opq", "a/.wh.gone", "a/file", "a/hard", ".wh.top"]);
  assert.deepEqual(found[0]!.xattrs, { "user.mine": "v" });
  assert.deepEqual(found[3]!.xattrs, {});
  assert.equal(found[4]!.linkname, "a/file");
});

test("LayerEntries leaves out what every sandbox has, and /etc unless something of the image is in it", () => {
  const ours: NewHeader[] = [
    { name: "./.gym-harbor-from/0/", type: "5" },
    { name: "./dev/", type: "5" },
    { name: "./dev/fifo", type: "6" },
    { name: "./etc/", type: "5", mode: 0o755 },
    { name: "./etc/hosts" },
    { name: "./etc/resolv.conf" },
  ];
  assert.deepEqual(namesOf(packed(ours)), []);
  assert.deepEqual(namesOf(packed([...ours, { name: "./etc/passwd" }])), ["etc/", "etc/passwd"]);
  assert.deepEqual(namesOf(packed(ours, 0o700)), ["etc/"], "its mode was changed");
});
