import assert from "node:assert/strict";
import { test } from "node:test";
import { HarborError } from "../../lib/errors.ts";
import { systemClock } from "../../lib/runtime/clock.ts";
import type { ImageNeed, ProviderDeps } from "../../lib/sandbox/provider.ts";
import { apptainerProvider } from "../../providers/apptainer.ts";
import { enrootProvider } from "../../providers/enroot.ts";
import { FakeRunner } from "../support/runner.ts";
import { writeTree } from "../support/tree.ts";

const signal = new AbortController().signal;
const NOT_THERE = new HarborError("machine.lacks", "not found");

const deps = (runner: FakeRunner, more: Partial<ProviderDeps> = {}): ProviderDeps => ({
  runner,
  clock: systemClock,
  env: { PATH: "/nowhere" },
  emit: () => {},
  scratch: "/nowhere/scratch",
  options: {},
  offline: true,
  ...more,
});

const need = (more: Partial<ImageNeed> = {}): ImageNeed => ({
  taskId: "hello",
  source: { kind: "named", reference: "debian:12" },
  network: "public",
  limits: {},
  users: [],
  ...more,
});

const make = { apptainer: apptainerProvider, enroot: enrootProvider };
const present = {
  apptainer: () => new FakeRunner().expect(/^apptainer --version$/, { stdout: "apptainer version 1.3.4\n" }),
  enroot: () =>
    new FakeRunner().expect(/^enroot version$/, { stdout: "3.4.1\n" }).expect(/^mksquashfs -version$/, { exitCode: 1 }),
};
const absent = {
  apptainer: () =>
    new FakeRunner().expect(/^apptainer --version$/, NOT_THERE).expect(/^singularity --version$/, NOT_THERE),
  enroot: () => new FakeRunner().expect(/^enroot version$/, NOT_THERE),
};

for (const name of ["apptainer", "enroot"] as const) {
  test(`${name}: diagnose() names the missing program and what mends it`, async () => {
    using runner = absent[name]();
    const { usable, missing, capabilities } = await make[name](deps(runner)).diagnose(signal);
    assert.deepEqual([usable, capabilities], [false, null]);
    assert.match(missing[0]!.what, new RegExp(`^${name} is not installed$`));
    assert.match(missing[0]!.fix, new RegExp(`install ${name}`));
  });

  test(`${name}: diagnose() tells version and networks, and that it builds nothing`, async () => {
    using runner = present[name]();
    const { usable, capabilities } = await make[name](deps(runner)).diagnose(signal);
    assert.equal(usable, true);
    assert.equal(capabilities!.build, false);
    assert.match(capabilities!.version, /^[13]\.\d\.\d$/);
    assert.equal(capabilities!.networks.includes("no-network"), name === "apptainer");
  });
}

test("apptainer: singularity serves as well", async () => {
  using runner = new FakeRunner().expect(/^apptainer --version$/, NOT_THERE)
    .expect(/^singularity --version$/, { stdout: "singularity-ce version 4.1.0-jammy" });
  assert.equal((await apptainerProvider(deps(runner)).diagnose(signal)).capabilities!.version, "4.1.0-jammy");
});

test("enroot: mksquashfs is named when it is missing", async () => {
  using runner = new FakeRunner().expect(/^enroot version$/, { stdout: "3.4.1" }).expect(/^mksquashfs/, NOT_THERE);
  const { missing } = await enrootProvider(deps(runner)).diagnose(signal);
  assert.deepEqual(missing[0]!.fix, "install squashfs-tools");
});

const REFUSED: [
  what: string,
  names: ("apptainer" | "enroot")[],
  need: Partial<ImageNeed>,
  says: RegExp,
  code?: string,
][] = [
  ["a task without an image", ["apptainer", "enroot"], { source: { kind: "none" } }, /^hello has no image/],
  [
    "no network on enroot",
    ["enroot"],
    { network: "no-network" },
    /^hello asks for no network: enroot shares this machine's$/,
  ],
  ["GPUs that are not there", ["apptainer", "enroot"], { limits: { gpus: 2 } }, /^hello asks for 2 GPU\(s\)/],
  ["E13: a Dockerfile that was built nowhere", ["apptainer", "enroot"], {
    source: { kind: "dockerfile", context: "/t", dockerfile: "/t/Dockerfile", tag: "hb__01", buildTimeoutMs: 1 },
  }, /cannot build environment\/Dockerfile$/],
  [
    "an image that is not here, offline",
    ["apptainer", "enroot"],
    {},
    /^Image debian:12 is not in the image store/,
    "image.failed",
  ],
  [
    "an image file that is not there",
    ["apptainer"],
    { source: { kind: "named", reference: "/no/x.sif" } },
    /^Image \/no\/x\.sif is not there$/,
    "image.failed",
  ],
];

for (const [what, names, more, says, code = "task.unsupported"] of REFUSED) {
  for (const name of names) {
    test(`${name}: prepare() refuses ${what}`, async () => {
      using runner = present[name]();
      await assert.rejects(make[name](deps(runner)).prepare(need(more), signal, () => {}), { code, message: says });
    });
  }
}

test("enroot: another user than root is refused where there is one id", async () => {
  using runner = present.enroot();
  const prepared = enrootProvider(deps(runner), 1000).prepare(need({ users: ["alice"] }), signal, () => {});
  await assert.rejects(prepared, { code: "task.unsupported", message: /^hello runs commands as alice/ });
});

test("apptainer: a task may name a .sif file; that its configuration is not known is noted", async () => {
  using tree = writeTree({ "x.sif": "SIF" });
  using runner = present.apptainer();
  const reference = `${tree.path}/x.sif`;
  const image = await apptainerProvider(deps(runner)).prepare(
    need({ source: { kind: "named", reference } }),
    signal,
    () => {},
  );
  assert.equal(image.reference, reference);
  assert.match(image.notes.join("\n"), /says nothing of its user.*\n.*shares this machine's/);
});

test("apptainer: no network is tried for real before a task counts on it", async () => {
  using tree = writeTree({ "x.sif": "SIF" });
  const source = { kind: "named" as const, reference: `${tree.path}/x.sif` };
  using runner = present.apptainer().expect(/ exec .*--net --network none .*x\.sif /, {
    exitCode: 255,
    stderr: "FATAL:   no CNI\n",
  });
  await assert.rejects(
    apptainerProvider(deps(runner)).prepare(need({ source, network: "no-network" }), signal, () => {}),
    { code: "task.unsupported", message: /^hello asks for no network, which apptainer cannot give: .*no CNI/ },
  );
});

test("options that there are not are refused by name", () => {
  using runner = new FakeRunner();
  assert.throws(
    () => apptainerProvider(deps(runner, { options: { writeable: "disk" } })),
    /sandbox\.apptainer\.writeable/,
  );
  assert.throws(() => enrootProvider(deps(runner, { options: { rc: "no" } })), /must be image or none/);
});
