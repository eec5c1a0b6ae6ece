/** What no sandbox that shares this machine's kernel may reach, tried from inside as its root. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import type { ExecResult } from "../../lib/sandbox/provider.ts";

/** Each script must fail, or print nothing of what it looks for. */
const FORBIDDEN: [what: string, script: string][] = [
  ["core_pattern", "echo '|/tmp/x' > /proc/sys/kernel/core_pattern"],
  ["sysctl", "echo 1 > /proc/sys/kernel/panic"],
  ["sysrq", "echo h > /proc/sysrq-trigger"],
  ["remounting /proc/sys", "mount -o remount,rw /proc/sys"],
  ["unmounting /proc/sys", "umount /proc/sys"],
  ["mounting", "mount -t tmpfs none /mnt"],
  ["mounting a proc of its own", "mkdir -p /mnt/p; mount -t proc proc /mnt/p"],
  ["remounting the root", "mount -o remount,exec,suid,dev /usr"],
  [
    "a control group's release_agent",
    "mkdir -p /mnt/c; mount -t cgroup -o memory c /mnt/c && echo /x > /mnt/c/release_agent",
  ],
  ["a control group file system", "find /sys/fs/cgroup -type f 2>/dev/null | grep ."],
  ["mknod of a disk", "mknod /tmp/disk b $(stat -c '%Hr %Lr' /dev/null 2>/dev/null || echo 8 0)"],
  ["mknod of kernel memory", "mknod /dev/mem c 1 1 && head -c 1 /dev/mem"],
  ["disks in /dev", "ls /dev | grep -E '^(sd|vd|nvme|xvd|loop|mem|kmem|port|kmsg|fuse)'"],
  ["module loading", "modprobe dummy"],
  ["the host's name", "hostname stolen"],
  ["network interfaces", "ip link add dummy0 type dummy"],
  ["the clock", "date -s '2001-01-01'"],
  ["chroot out by an old root", "ls /.old"],
  ["folders behind PID 1's descriptors", "for f in /proc/1/fd/*; do [ -d $f/. ] && ls $f/; done | grep ."],
  ["writing the control folder", "echo x > /.gym-harbor/planted"],
  ["keyrings", "cat /proc/keys | grep ."],
];

export interface Isolated {
  /** How the tests call it. */
  name: string;
  /** Runs a script in one sandbox, as its root. */
  run(script: string): Promise<ExecResult>;
  /** What besides is out of reach. */
  more?: [what: string, script: string][];
}

export function isolationContract({ name, run, more = [] }: Isolated): void {
  for (const [what, script] of [...FORBIDDEN, ...more]) {
    test(`${name}: out of reach: ${what}`, async () => {
      const result = await run(script);
      assert.notEqual(result.exitCode, 0, `${script}\n${result.stdout}`);
    });
  }

  test(`${name}: a nested user namespace opens no way to the kernel's files`, async () => {
    const tries = [
      "unshare -Urm sh -c 'mount -o remount,rw /proc/sys && echo x > /proc/sys/kernel/core_pattern'",
      "unshare -Urm sh -c 'umount /proc/sys && echo x > /proc/sys/kernel/core_pattern'",
      "unshare -Urmpf sh -c 'mount -t proc proc /proc && echo x > /proc/sys/kernel/core_pattern'",
      "unshare -UrmC sh -c 'mkdir -p /tmp/c && mount -t cgroup -o memory c /tmp/c && echo /x > /tmp/c/release_agent'",
    ];
    const pattern = readFileSync("/proc/sys/kernel/core_pattern", "utf8");
    for (const script of tries) assert.notEqual((await run(script)).exitCode, 0, script);
    assert.equal(readFileSync("/proc/sys/kernel/core_pattern", "utf8"), pattern);
  });

  test(`${name}: capabilities are bounded for every command and for the first process`, async () => {
    const bounding = async (script: string) =>
      BigInt(`0x${/CapBnd:\s*([0-9a-f]+)/.exec((await run(script)).stdout)?.[1] ?? "0"}`);
    const forbidden = [12, 16, 17, 19, 21, 27]; // net_admin, sys_module, sys_rawio, sys_ptrace, sys_admin, mknod
    for (const script of ["grep CapBnd /proc/self/status", "grep CapBnd /proc/1/status"]) {
      const set = await bounding(script);
      for (const bit of forbidden) assert.equal(set & (1n << BigInt(bit)), 0n, `${script}: bit ${bit}`);
    }
  });
}
