/** The one file keeps its promises wherever it is started: no folder steers it, and it needs next to nothing. */
import { after, test } from "node:test";
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  copyFileSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { binary, REPOSITORY } from "../support/cli.ts";
import { needing, needsRoot } from "../support/kit.ts";

const home = mkdtempSync(join(tmpdir(), "gh-binary-"));
chmodSync(home, 0o755);
after(() => rmSync(home, { recursive: true, force: true }));

const VERSION = /^gym-harbor \d+\.\d+\.\d+\n$/;

function run(argv: string[], options: { cwd?: string; env?: Record<string, string> } = {}) {
  return spawnSync(argv[0]!, argv.slice(1), { encoding: "utf8", cwd: home, timeout: 60_000, ...options });
}

test("it loads nothing from the folder it is started in", () => {
  const trap = join(home, "trap");
  mkdirSync(trap);
  writeFileSync(join(trap, ".env"), "HOME=/from-dotenv\nGYM_HARBOR_TRAP=1\nBUN_OPTIONS=--preload ./preload.ts\n");
  writeFileSync(join(trap, "bunfig.toml"), 'preload = ["./preload.ts"]\n');
  writeFileSync(join(trap, "preload.ts"), 'require("node:fs").writeFileSync("sprung", "");\n');
  writeFileSync(join(trap, "package.json"), '{"type":"module","imports":{"zod":"./preload.ts"}}');
  writeFileSync(join(trap, "tsconfig.json"), '{"compilerOptions":{"paths":{"commander":["./preload.ts"]}}}');
  for (const args of [["--version"], ["check", "-h"], ["list", "sandboxes"], ["doctor", "-h"]]) {
    const { status, stderr } = run([binary(), ...args], { cwd: trap });
    assert.equal(status, 0, stderr);
  }
  assert.ok(!readdirSync(trap).includes("sprung"), "the preload of bunfig.toml or .env ran");
});

test("what it starts sees nothing of a .env in the folder", () => {
  const trap = join(home, "dotenv");
  mkdirSync(trap);
  const bin = join(home, "dotenv-bin");
  mkdirSync(bin);
  writeFileSync(join(trap, ".env"), "GYM_HARBOR_TRAP=1\n");
  for (const engine of ["docker", "podman"]) {
    writeFileSync(join(bin, engine), `#!/bin/sh\nenv >> ${home}/child-env\nexit 1\n`);
    chmodSync(join(bin, engine), 0o755);
  }
  run([binary(), "doctor"], {
    cwd: trap,
    env: { PATH: `${bin}:/usr/bin:/bin`, BUN_BE_BUN: "", BUN_INSPECT: "", TMPDIR: home },
  });
  const seen = spawnSync("cat", [join(home, "child-env")], { encoding: "utf8" }).stdout;
  assert.match(seen, /^PATH=/m);
  assert.doesNotMatch(seen, /GYM_HARBOR_TRAP|^BUN_/m);
});

for (
  const [what, argv] of [
    ["an empty environment", ["env", "-i", "BIN", "--version"]],
    ["no HOME", ["env", "-u", "HOME", "BIN", "--version"]],
    ["LC_ALL=C and TERM=dumb", ["env", "LC_ALL=C", "TERM=dumb", "BIN", "--version"]],
    ["closed standard streams but one", ["sh", "-c", '"$0" --version <&- 2>&-', "BIN"]],
  ] as const
) {
  test(`it runs with ${what}`, () => {
    const { status, stdout, stderr } = run(argv.map((word) => word === "BIN" ? binary() : word));
    assert.equal(status, 0, stderr);
    assert.match(stdout, VERSION);
  });
}

test("all streams closed is no crash", () => {
  assert.equal(run(["sh", "-c", '"$0" --version <&- >&- 2>&-', binary()]).status, 0);
});

test("a reader that leaves early changes nothing", () => {
  const { stdout, stderr } = run(["bash", "-c", '"$0" -h | head -n 1; echo "${PIPESTATUS[0]}"', binary()]);
  assert.match(stdout, /^gym-harbor .*\n0\n$/);
  assert.equal(stderr, "");
});

for (const name of ["gym", "ng"]) {
  test(`it answers to the name ${name}, by link and by copy`, () => {
    const link = join(home, "link");
    mkdirSync(link, { recursive: true });
    symlinkSync(binary(), join(link, name));
    const linked = run([join(link, name), "dataset"]);
    assert.equal(linked.status, 2);
    assert.match(linked.stdout, new RegExp(`^Usage: ${name} dataset COMMAND`));
    const byPath = run(["env", `PATH=${link}:/usr/bin:/bin`, name, "-h"]);
    assert.match(byPath.stdout, new RegExp(`Usage: ${name} COMMAND`));
    const copy = join(home, "copy");
    mkdirSync(copy, { recursive: true });
    copyOrLink(binary(), join(copy, name));
    assert.match(run([join(copy, name), "-h"]).stdout, new RegExp(`Usage: ${name} COMMAND`));
  });
}

function copyOrLink(from: string, to: string): void {
  try {
    linkSync(from, to);
  } catch {
    copyFileSync(from, to);
  }
}

needing(needsRoot(), "any uid may run it, also one without a passwd entry", () => {
  const copy = join(home, "gym-harbor");
  copyFileSync(binary(), copy);
  chmodSync(copy, 0o755);
  for (const uid of ["65534", "123456"]) {
    const argv = ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", copy, "--version"];
    const { status, stdout, stderr } = run(argv, { cwd: "/" });
    assert.equal(status, 0, stderr);
    assert.match(stdout, VERSION);
    const doctor = run(["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", "env", "-i", copy, "doctor"], {
      cwd: "/",
    });
    assert.ok(doctor.status === 0 || doctor.status === 3, doctor.stdout + doctor.stderr);
    assert.doesNotMatch(doctor.stderr, /^bug:/m);
  }
});

needing(needsRoot(), "it runs on a read-only root, with nothing to write and no HOME", () => {
  const script = `
    set -e
    mount --rbind / /mnt && cd /mnt
    mount -t tmpfs none /mnt/tmp && cp "$1" /mnt/tmp/gym-harbor
    mount -o remount,bind,ro /mnt && mount -o remount,ro /mnt/tmp
    exec chroot /mnt /usr/bin/env -i /tmp/gym-harbor --version`;
  const { status, stdout, stderr } = run([
    "unshare",
    "--mount",
    "--propagation",
    "private",
    "sh",
    "-c",
    script,
    "sh",
    binary(),
  ]);
  assert.equal(status, 0, stderr);
  assert.match(stdout, VERSION);
});

test("it needs nothing but libc, and no library of a newer one than 2.17", () => {
  const { stdout, status } = run(["ldd", binary()]);
  if (status !== 0) return; // no ldd here: nothing to ask
  const names = stdout.split("\n").map((line) => line.trim().split(/[\s/]/)[0]!.replace(/\.so.*/, ""));
  const odd = names.filter((name) =>
    name !== "" && !/^(linux-vdso|libc|libm|libdl|libpthread|ld-linux.*|lib64)$/.test(name)
  );
  assert.deepEqual(odd, []);
});

test("compile.sh says how it is used and refuses what it does not know", () => {
  const script = join(REPOSITORY, "compile.sh");
  assert.match(run(["bash", script, "-h"]).stdout, /--target TARGET/);
  assert.equal(run(["bash", script, "--bnu"]).status, 2);
});
