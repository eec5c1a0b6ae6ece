import { test } from "node:test";
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { BuilderOptions } from "../../../lib/images/builder.ts";
import type { Space } from "../../../lib/files/disk.ts";
import { emulationWarning, ready, refuseFull } from "../../../providers/builders/_ready.ts";
import { buildahPlace, NEEDED_BYTES } from "../../../providers/builders/_storage.ts";
import { FakeRunner } from "../../support/runner.ts";

const never = new AbortController().signal;
const PLENTY: Space = { freeBytes: 100 * 1024 ** 3 };
const OPTIONS: BuilderOptions = { platform: "linux/amd64" };
const podmanInfo = (more: Record<string, unknown> = {}) => ({
  stdout: JSON.stringify({
    host: { os: "linux", arch: "amd64" },
    store: { graphRoot: "/home/u/.local/share/containers/storage", graphDriverName: "overlay" },
    ...more,
  }),
});
const deps = (runner: FakeRunner, space: Space = PLENTY, env: Record<string, string> = {}) => ({
  runner,
  env,
  options: OPTIONS,
  space: () => space,
});

test("E10: storage on a network file system is told before anything is built, with the place and the way out", async () => {
  for (const network of ["NFS", "Lustre", "GPFS"]) {
    using runner = new FakeRunner().expect(/^podman info/, podmanInfo());
    await assert.rejects(ready("podman", deps(runner, { ...PLENTY, network }), never), {
      code: "machine.lacks",
      message: new RegExp(`^podman keeps images in /home/u/\\.local/share/containers/storage, on ${network},`),
      hint: /graphroot/,
    });
  }
});

test("E16: a full disk is told before anything is built", async () => {
  using runner = new FakeRunner().expect(/^podman info/, podmanInfo());
  await assert.rejects(ready("podman", deps(runner, { freeBytes: NEEDED_BYTES - 1 }), never), {
    code: "machine.lacks",
    message:
      /^only 255 MiB free in \/home\/u\/\.local\/share\/containers\/storage, where podman keeps images; at least 256/,
  });
  refuseFull("/x", "podman", { freeBytes: NEEDED_BYTES });
  refuseFull("/x", "podman", undefined);
});

test("vfs is worth a warning", async () => {
  using runner = new FakeRunner().expect(
    /^podman info/,
    podmanInfo({ store: { graphRoot: "/s", graphDriverName: "vfs" } }),
  );
  assert.match((await ready("podman", deps(runner), never)).warnings.join(), /^podman uses the storage driver vfs/);
});

test("buildah has a storage of its own, with overlay where that works and vfs where it does not", async () => {
  const folder = mkdtempSync(join(tmpdir(), "gh-buildah-"));
  try {
    const options = { ...OPTIONS, storageDir: join(folder, "images") };
    const info = (driver: string) => ({
      stdout: JSON.stringify({
        host: { os: "linux", arch: "arm64" },
        store: { GraphRoot: join(folder, "images/root"), GraphDriverName: driver },
      }),
    });
    using overlay = new FakeRunner().expect(
      /^buildah --root .*\/images\/root --runroot .*\/images\/run --storage-driver overlay info$/,
      info("overlay"),
    );
    const good = await ready("buildah", { ...deps(overlay), options }, never);
    assert.deepEqual([good.machine, good.warnings, good.tool.flags?.[0]], ["linux/arm64", [], "--root"]);
    using none = new FakeRunner().expect(/overlay info$/, {
      exitCode: 125,
      stderr: "kernel does not support overlay fs",
    })
      .expect(/--storage-driver vfs info$/, info("vfs"));
    const slow = await ready("buildah", { ...deps(none), options }, never);
    assert.ok(slow.tool.flags?.includes("vfs"));
    assert.match(slow.warnings.join(), /vfs/);
    using own = new FakeRunner().expect(/^buildah info$/, info("overlay"));
    const chosen = await ready("buildah", deps(own, PLENTY, { CONTAINERS_STORAGE_CONF: "/s.conf" }), never);
    assert.deepEqual(chosen.tool.flags, [], "who wrote a storage.conf has chosen the place");
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("buildahPlace() is the user's own, on a local disk", () => {
  assert.equal(buildahPlace({}, "/given"), "/given");
  assert.equal(buildahPlace({ TMPDIR: "/local" }, undefined), "/local/nemo-gym-buildah");
});

test("a docker that is podman, or whose engine is away, is named as that", async () => {
  const rows: [stdout: string, stderr: string, message: RegExp][] = [
    ['{"Client":{"APIVersion":"4.3.1","Version":"4.3.1"}}', "", /^the docker on PATH is podman$/],
    [
      '{"Client":{"Version":"28.2.2","ApiVersion":"1.50"},"Server":null}',
      "Cannot connect to the Docker daemon at unix:///x.",
      /^docker's engine does not answer: Cannot connect/,
    ],
    ["", "permission denied while trying to connect to the Docker daemon socket", /permission denied/],
  ];
  for (const [stdout, stderr, message] of rows) {
    using runner = new FakeRunner().expect(/^docker version/, {
      exitCode: stdout.includes("Server") || stdout === "" ? 1 : 0,
      stdout,
      stderr,
    });
    await assert.rejects(ready("docker", deps(runner), never), { code: "engine.missing", message });
  }
});

test("E18: another platform without an emulator is worth a warning that says what to install", () => {
  const rows: [platform: string, machine: string, handlers: string[], warning: RegExp | undefined][] = [
    ["linux/amd64", "linux/amd64", [], undefined],
    ["linux/arm64", "linux/amd64", ["register", "status", "qemu-aarch64"], undefined],
    [
      "linux/arm64",
      "linux/amd64",
      ["register", "status"],
      /for linux\/arm64 .* on linux\/amd64 .*qemu-aarch64.*--install arm64/,
    ],
    ["linux/amd64", "linux/arm64", [], /qemu-x86_64/],
  ];
  for (const [platform, machine, handlers, warning] of rows) {
    const found = emulationWarning(platform, machine, handlers);
    if (warning === undefined) assert.equal(found, undefined);
    else assert.match(found ?? "", warning);
  }
});
