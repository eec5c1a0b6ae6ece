import assert from "node:assert/strict";
import { test } from "node:test";
import { homesOf, isHiddenByName, isPrivate } from "../../providers/_host_private.ts";
import { type Child, parseMounts, takeApart, viewOf } from "../../providers/_host_view.ts";
import { type MountRequest, planMounts, planSkeleton } from "../../providers/_namespace_mounts.ts";

test("parseMounts() reads points and types, octal escapes and the topmost of two mounts", () => {
  const text = [
    "21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw",
    "35 21 0:31 / /opt/my\\040data rw - nfs4 srv:/x rw",
    "36 21 0:32 / /var rw - nfs4 srv:/v rw",
    "37 36 8:2 / /var rw - xfs /dev/sdb rw",
    "",
  ].join("\n");
  assert.deepEqual(parseMounts(text), [
    { at: "/", type: "ext4" },
    { at: "/opt/my data", type: "nfs4" },
    { at: "/var", type: "xfs" },
  ]);
});

const dirs = (...names: string[]) => names.map((name) => ({ name }));

const VIEWS: [string, Parameters<typeof viewOf>, Partial<ReturnType<typeof viewOf>>][] = [
  [
    "program folders are shown, data and homes are not",
    [dirs("usr", "etc", "home", "root", "data", "srv", "boot", "mnt", "tmp", "work"), []],
    { folders: ["/etc", "/usr"] },
  ],
  ["links are copied as links", [[{ name: "bin", link: "usr/bin" }, { name: "usr" }], []], {
    folders: ["/usr"],
    links: { "/bin": "usr/bin" },
  }],
  ["a disk mounted below a shown folder gets an overlay of its own, after its parent", [dirs("usr"), [
    { at: "/usr/local", type: "xfs" },
  ]], { folders: ["/usr", "/usr/local"] }],
  ["a network file system below a shown folder is left out", [dirs("usr", "opt"), [
    { at: "/usr/share/site", type: "nfs4" },
    { at: "/opt", type: "lustre" },
    { at: "/usr/x", type: "fuse.sshfs" },
  ]], { folders: ["/usr"], network: ["/opt", "/usr/share/site", "/usr/x"] }],
  ["a diskless node keeps its programs", [dirs("usr", "etc"), [{ at: "/usr", type: "nfs" }]], {
    folders: ["/etc", "/usr"],
    network: [],
  }],
  ["what engines mount in their storage is nobody's business", [dirs("var"), [
    { at: "/var/lib/docker/overlay2/x/merged", type: "overlay" },
    { at: "/var/lib/docker", type: "ext4" },
  ], isHiddenByName], { folders: ["/var"] }],
];

for (const [name, input, wanted] of VIEWS) {
  test(`viewOf(): ${name}`, () => {
    const view = viewOf(...input);
    for (const [key, value] of Object.entries(wanted)) assert.deepEqual(view[key as keyof typeof view], value);
  });
}

test("takeApart() shows a folder with locked mounts below it piece by piece, and not what is mounted there", () => {
  const tree: Record<string, Child[]> = {
    "/var": [
      { name: "cache", kind: "folder" },
      { name: "lib", kind: "folder" },
      { name: "lock", kind: "link", target: "/run/lock" },
      { name: "note", kind: "file" },
    ],
    "/var/lib": [
      { name: "docker", kind: "folder" },
      { name: "dpkg", kind: "folder" },
      { name: "lxcfs", kind: "folder" },
    ],
  };
  const mounts = [{ at: "/var/lib/docker/x", type: "overlay" }, { at: "/var/lib/lxcfs", type: "fuse.lxcfs" }];
  const view = viewOf(dirs("usr", "var"), mounts, isHiddenByName);
  const apart = takeApart(view, mounts, (folder) => tree[folder] ?? [], isHiddenByName);
  assert.deepEqual(apart.folders, ["/usr", "/var/cache", "/var/lib/dpkg"]);
  assert.deepEqual(apart.plain, ["/var", "/var/lib"]);
  assert.deepEqual([apart.files, apart.links], [["/var/note"], { "/var/lock": "/run/lock" }]);
});

test("isPrivate() counts what only its owner or group may read, and for a plain user only what is his", () => {
  const rows: [number, number, number, boolean][] = [
    [0o100600, 0, 0, true],
    [0o100640, 0, 0, true],
    [0o40700, 33, 0, true],
    [0o100644, 0, 0, false],
    [0o40711, 0, 0, false],
    [0o120777, 0, 0, false],
    [0o100600, 0, 1000, false],
    [0o100600, 1000, 1000, true],
  ];
  for (const [mode, uid, our, wanted] of rows) {
    assert.equal(isPrivate({ mode, uid }, our), wanted, `${mode.toString(8)} ${uid}`);
  }
});

const REQUEST: MountRequest = {
  base: "/tmp/b",
  control: "/tmp/c",
  skeleton: "/tmp/s",
  storage: "disk",
  folders: ["/usr", "/usr/local"],
  lowers: (folder) => (folder === "/usr" ? ["/l/mask/usr"] : []),
  rootLowers: [],
  covered: [{ path: "/etc/shadow", folder: false }],
  sysfs: true,
  ttyGroup: true,
  procEntries: ["sys", "keys", "acpi"],
  sysPaths: ["/sys/firmware"],
};
const lines = (request: MountRequest) => planMounts(request).fstab.trim().split("\n");

test("planMounts() gives each folder an overlay over the layers that have it, never with devices", () => {
  const overlays = lines(REQUEST).filter((line) => line.startsWith("overlay "));
  assert.deepEqual(overlays, [
    "overlay /tmp/b/tree/root overlay nodev,userxattr,lowerdir=/tmp/s/root,upperdir=tree/up/root,workdir=tree/wk/root 0 0",
    "overlay /tmp/b/tree/root/usr overlay nodev,userxattr,lowerdir=/l/mask/usr:/usr,upperdir=tree/up/0-usr,workdir=tree/wk/0-usr 0 0",
    "overlay /tmp/b/tree/root/usr/local overlay nodev,userxattr,lowerdir=/usr/local,upperdir=tree/up/1-usr-local,workdir=tree/wk/1-usr-local 0 0",
  ]);
});

test("planSkeleton() makes what every root needs, and parents before what lies in them", () => {
  const made = planSkeleton({
    folders: ["/usr", "/usr/local", "/var/cache"],
    links: { "/bin": "usr/bin" },
    plain: ["/var"],
    copies: ["/var/note"],
  });
  const paths = made.folders.map(([path]) => path);
  assert.deepEqual(paths.filter((path) => /^.(usr|var)/.test(path)), [
    "/usr",
    "/var",
    "/var/cache",
    "/var/tmp",
    "/var/mail",
    "/var/spool",
  ]);
  assert.equal(new Set(paths).size, paths.length);
  assert.deepEqual(made.links[0], ["/bin", "usr/bin"]);
  assert.ok(
    !planSkeleton({ folders: ["/var"], links: {}, plain: [], copies: [] }).folders.some(([path]) =>
      path === "/var/tmp"
    ),
  );
});

test("planMounts() makes kernel files read-only or empty, and only those that exist here", () => {
  const proc = lines(REQUEST).filter((line) => /root\/proc\//.test(line));
  assert.equal(proc.length, 3);
  assert.match(proc[0]!, /proc\/sys .*bind,ro/);
  assert.ok(proc.some((line) => /^\/dev\/null .*proc\/keys /.test(line)));
  assert.ok(!planMounts({ ...REQUEST, sysfs: false }).fstab.includes("/tree/root/sys "));
});

test("planMounts() without overlays binds folders read-only and covers what is hidden", () => {
  const all = lines({ ...REQUEST, folders: ["/etc", "/usr"], storage: "read-only" });
  assert.ok(all.some((line) => line === "/usr /tmp/b/tree/root/usr none bind,ro,nodev 0 0"));
  assert.ok(all.some((line) => line === "/dev/null /tmp/b/tree/root/etc/shadow none bind,ro 0 0"));
  assert.ok(!all.some((line) => line.startsWith("overlay")));
});

test("planMounts() escapes what fstab cannot hold", () => {
  assert.match(planMounts({ ...REQUEST, base: "/tmp/a b#c\\d" }).fstab, /\/tmp\/a\\040b\\043c\\134d\/tree\/root /);
});

test("homesOf() names where people keep their files, never a folder of programs", () => {
  const passwd = [
    "root:x:0:0:root:/root:/bin/bash",
    "daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin",
    "ann:x:1000:1000::/var/home/ann:/bin/bash",
    "svc:x:1001:1001::/opt:/bin/sh",
    "lib:x:1002:1002::/var/lib:/bin/sh",
    "nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin",
    "",
  ].join("\n");
  assert.deepEqual(homesOf(passwd, "/opt/people/us/"), ["/var/home/ann", "/opt/people/us"]);
  assert.deepEqual(homesOf("", undefined), []);
  assert.deepEqual(homesOf("", "/usr/local"), []);
});
