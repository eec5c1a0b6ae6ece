import { test } from "node:test";
import assert from "node:assert/strict";
import { type FolderFacts, limitOf, machineFacts, machineFindings, mountOf } from "../../../lib/sandbox/machine.ts";

const folder: FolderFacts = {
  role: "temp folder",
  moveBy: "set TMPDIR",
  path: "/tmp",
  writable: true,
  freeBytes: 2 ** 40,
  fileSystem: "ext4",
  noexec: false,
};
const home = { ...folder, role: "HOME", moveBy: "set HOME", path: "/home/a" };
const sound = { folders: [folder, home], openFiles: 4096, processes: 4096 };

test("machineFindings() says nothing of a sound machine, and nothing of what it does not know", () => {
  assert.deepEqual(machineFindings(sound), []);
  const unknown = { ...folder, freeBytes: null, fileSystem: null };
  assert.deepEqual(machineFindings({ folders: [unknown], openFiles: null, processes: null }), []);
  assert.deepEqual(machineFindings({ ...sound, openFiles: Infinity, processes: Infinity }), []);
});

for (
  const [what, facts, says, fix] of [
    [
      "a temp folder that cannot be written",
      { folders: [{ ...folder, writable: false }] },
      /temp folder \/tmp cannot/,
      /TMPDIR/,
    ],
    [
      "a full disk",
      { folders: [{ ...folder, freeBytes: 5 * 2 ** 20 }] },
      /\/tmp has 5 MiB left/,
      /free some space, or set TMPDIR/,
    ],
    [
      "a temp folder on NFS",
      { folders: [{ ...folder, fileSystem: "nfs4" }] },
      /is on nfs4, a network file system/,
      /set TMPDIR/,
    ],
    ["a HOME on Lustre", { folders: [{ ...home, fileSystem: "lustre" }] }, /HOME \/home\/a is on lustre/, /graphroot/],
    ["a noexec temp folder", { folders: [{ ...folder, noexec: true }] }, /mounted noexec/, /without noexec/],
    ["few open files", { openFiles: 256 }, /only 256 open files/, /ulimit -n/],
    ["few processes", { processes: 64 }, /only 64 processes/, /ulimit -u/],
  ] as const
) {
  test(`machineFindings() names ${what} and what mends it`, () => {
    const found = machineFindings({ ...sound, folders: [], ...facts } as typeof sound);
    assert.equal(found.length, 1);
    assert.match(found[0]!.what, says);
    assert.match(found[0]!.fix, fix);
  });
}

const MOUNTS = [
  "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw",
  "30 22 0:30 / /tmp rw,nosuid,noexec - tmpfs tmpfs rw",
  "31 22 0:31 / /home rw shared:7 - nfs4 server:/home rw",
  "32 31 0:32 / /home/a\\040b rw - ext4 /dev/sdb rw",
  "33 22 0:33 / /tmp/run rw - xfs /dev/sdc rw",
  "34 22 0:34 / /tmp/run rw - overlay o rw",
].join("\n");

for (
  const [path, fileSystem, noexec] of [
    ["/", "ext4", false],
    ["/tmp", "tmpfs", true],
    ["/tmpfoo", "ext4", false],
    ["/home/x", "nfs4", false],
    ["/home/a b/c", "ext4", false],
    ["/tmp/run/x", "overlay", false],
  ] as const
) {
  test(`mountOf() finds ${fileSystem} under ${path}`, () => {
    assert.deepEqual(mountOf(path, MOUNTS), { fileSystem, noexec });
  });
}

test("limitOf() reads the soft limit", () => {
  const limits = "Limit  Soft Hard Units\nMax open files            1024                 524288               files\n" +
    "Max processes             unlimited            unlimited            processes\n";
  assert.equal(limitOf("Max open files", limits), 1024);
  assert.equal(limitOf("Max processes", limits), Infinity);
  assert.equal(limitOf("Max nothing", limits), null);
});

test("machineFacts() never throws, whatever the environment says", async () => {
  const facts = await machineFacts({ TMPDIR: "/no/such/place", HOME: "\0" }, "/no/such/folder");
  assert.equal(facts.folders.length, 3);
  assert.equal(facts.folders[0]!.writable, false);
});
