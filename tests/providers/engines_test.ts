import { test } from "node:test";
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { HarborError } from "../../lib/errors.ts";
import { systemClock } from "../../lib/runtime/clock.ts";
import type { RunResult } from "../../lib/runtime/runner.ts";
import type { ImageNeed, ProviderDeps, SandboxSpec } from "../../lib/sandbox/provider.ts";
import { dockerProvider } from "../../providers/docker.ts";
import { chooseSandbox, providerName } from "../../providers/mod.ts";
import { podmanProvider } from "../../providers/podman.ts";
import { fileLimitFaults, hasRange } from "../../providers/_oci_diagnose.ts";
import { FakeRunner } from "../support/runner.ts";

const never = new AbortController().signal;
const deps = (runner: FakeRunner): ProviderDeps => ({
  runner,
  clock: systemClock,
  env: { PATH: "/nowhere" },
  emit: () => {},
  scratch: "/nowhere",
  options: {},
});
/** The same on a clock that waits for nothing. */
const hurried = (runner: FakeRunner): ProviderDeps => ({
  ...deps(runner),
  clock: { ...systemClock, sleep: () => Promise.resolve() },
});
const DOCKER_INFO = {
  ServerVersion: "20.10.24",
  NCPU: 2,
  MemoryLimit: true,
  CpuCfsQuota: true,
  PidsLimit: true,
  OSType: "linux",
};
const PODMAN_INFO = {
  host: { cpus: 2, cgroupVersion: "v2", cgroupControllers: ["cpu", "memory", "pids"], security: { rootless: true } },
  version: { Version: "4.3.1" },
};
const AA = `sha256:${"a".repeat(64)}`;
const BB = `sha256:${"b".repeat(64)}`;
const IMAGE = {
  Id: "sha256:1f",
  RepoDigests: [`python@${AA}`],
  Config: { Env: ["A=b=c"], WorkingDir: "/w", User: "u", Entrypoint: ["/e"] },
};
const json = (value: unknown): Partial<RunResult> => ({ stdout: JSON.stringify(value) });
const named = (reference: string, more: Partial<ImageNeed> = {}): ImageNeed => ({
  taskId: "t",
  source: { kind: "named", reference },
  network: "public",
  limits: {},
  users: [],
  ...more,
});

test("docker: diagnose() says what is missing and what mends it", async () => {
  const rows: [Partial<RunResult> | Error, RegExp, RegExp][] = [
    [new HarborError("machine.lacks", "Cannot start docker"), /not installed/, /install/],
    [
      { exitCode: 1, stderr: "Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?" },
      /does not answer.*Cannot connect/,
      /start/,
    ],
    [{ ...json({ ServerErrors: ["Cannot connect to the Docker daemon"] }), exitCode: 1 }, /does not answer/, /start/],
    [
      { exitCode: 1, stderr: "permission denied while trying to connect to the Docker daemon socket" },
      /may not be used by this user/,
      /usermod/,
    ],
    [{ ended: "deadline", exitCode: 137 }, /did not answer within/, /restart/],
    [json({ host: {}, version: {} }), /docker on PATH is podman/, /--sandbox podman/],
    [json({ ...DOCKER_INFO, OSType: "windows" }), /windows/, /Linux/],
  ];
  for (const [reply, what, fix] of rows) {
    using runner = new FakeRunner().expect(/^docker info /, reply);
    const diagnosis = await dockerProvider(deps(runner)).diagnose(never, "quick");
    assert.equal(diagnosis.usable, false);
    assert.match(diagnosis.missing[0]!.what, what);
    assert.match(diagnosis.missing[0]!.fix, fix);
  }
});

test("docker: diagnose() asks once, and says what the engine can", async () => {
  using runner = new FakeRunner().expect(/^docker info --format \{\{json \.\}\}$/, json(DOCKER_INFO));
  const provider = dockerProvider(deps(runner));
  const [one, two] = await Promise.all([provider.diagnose(never, "quick"), provider.diagnose(never, "quick")]);
  assert.deepEqual(one, two);
  assert.deepEqual([one.usable, one.capabilities?.limits, one.capabilities?.gpu], [true, "enforced", false]);
});

test("docker: a thorough diagnosis starts something, and names what the machine refuses", async () => {
  using runner = new FakeRunner()
    .expect(/^docker info/, json({ ...DOCKER_INFO, DockerRootDir: "/" }))
    .expect(/^docker images -q/, { stdout: "abc\n" })
    .expect(/^docker run --rm --pull never --network none .* abc /, {
      exitCode: 125,
      stderr:
        "docker: Error response from daemon: OCI runtime create failed: error setting rlimit type 7: operation not permitted: unknown.",
    })
    .expect(/^docker buildx version/, { exitCode: 1 })
    .expect(/^docker --version/, { stdout: "Docker version 28.2.2, build e6534b4" });
  const { usable, missing } = await dockerProvider(deps(runner)).diagnose(never);
  assert.equal(usable, false);
  assert.match(missing[0]!.what, /rlimit/);
  assert.match(missing[0]!.fix, /default_ulimits/);
  assert.ok(missing.some(({ what }) => /classic builder/.test(what)));
});

test("docker: where its client lacks buildx, an older client on PATH brings BuildKit", async () => {
  const folder = mkdtempSync(join(tmpdir(), "gym-harbor-client-"));
  try {
    writeFileSync(join(folder, "docker"), "");
    using runner = new FakeRunner()
      .expect(/^docker info/, json({ ...DOCKER_INFO, DockerRootDir: "/" }))
      .expect(/^docker images -q/, { stdout: "abc\n" })
      .expect(/^docker run --rm /, {})
      .expect(/^docker buildx version/, { exitCode: 1 })
      .expect(/^docker --version/, { stdout: "Docker version 28.2.2, build e6534b4" })
      .expect(/^\/\S+\/docker --version/, { stdout: "Docker version 20.10.24+dfsg1, build 297e128" });
    const { missing } = await dockerProvider({ ...deps(runner), env: { PATH: folder } }).diagnose(never);
    assert.equal(missing.some(({ what }) => /classic builder/.test(what)), false);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("podman: limits hold only where its user has the controllers", async () => {
  const rows: [object, string][] = [
    [PODMAN_INFO.host, "enforced"],
    [{ ...PODMAN_INFO.host, cgroupControllers: ["memory", "pids"] }, "partly"],
    [{ ...PODMAN_INFO.host, cgroupControllers: [] }, "none"],
    [{ ...PODMAN_INFO.host, cgroupVersion: "v1" }, "none"],
    [{ ...PODMAN_INFO.host, cgroupVersion: "v1", security: { rootless: false } }, "enforced"],
  ];
  for (const [host, limits] of rows) {
    using runner = new FakeRunner().expect(/^podman info --format json$/, json({ ...PODMAN_INFO, host }));
    assert.equal((await podmanProvider(deps(runner)).diagnose(never, "quick")).capabilities?.limits, limits);
  }
});

test("podman: what info says when it fails comes with what mends it", async () => {
  using runner = new FakeRunner().expect(/^podman info/, {
    exitCode: 125,
    stderr: "Error: crun: cgroups in hybrid mode not supported, drop all controllers from cgroupv1\n",
  });
  const { missing } = await podmanProvider(deps(runner)).diagnose(never, "quick");
  assert.match(missing[0]!.what, /hybrid mode/);
  assert.match(missing[0]!.fix, /runc|rootless|range|XDG/);
});

test("prepare() uses what is there without a pull, pinned where its digest is known", async () => {
  using runner = new FakeRunner().expect(/^docker info/, json(DOCKER_INFO)).expect(
    /^docker image inspect python:3.12$/,
    json([IMAGE]),
  );
  const provider = dockerProvider(deps(runner));
  const [image] = await Promise.all([
    provider.prepare(named("python:3.12"), never, () => {}),
    provider.prepare(named("python:3.12"), never, () => {}),
  ]);
  assert.deepEqual(image, {
    reference: `library/python@${AA}`,
    workdir: "/w",
    env: { A: "b=c" },
    user: "u",
    entrypoint: ["/e"],
    config: image!.config,
    notes: [],
    handle: { id: "sha256:1f" },
  });
  assert.deepEqual([image!.config?.Entrypoint, image!.config?.User], [["/e"], "u"]);
});

test("prepare() pulls what is not there, under the name that podman needs", async () => {
  using runner = new FakeRunner()
    .expect(/^podman info/, json(PODMAN_INFO))
    .expect(/^podman image inspect python:3.12$/, { exitCode: 125, stderr: "Error: python:3.12: image not known" })
    .expect(/^podman pull -q docker\.io\/library\/python:3\.12$/)
    .expect(/^podman image inspect python:3.12$/, json([{ Id: "1f", Config: {} }]));
  const image = await podmanProvider(deps(runner)).prepare(named("python:3.12"), never, () => {});
  assert.deepEqual([image.reference, image.workdir, image.user], ["python:3.12", "/", ""]);
});

test("prepare() looks twice before it doubts an image, and pulls only what the engine says is absent", async () => {
  const present = json([{ Id: "1f", Config: {} }]);
  const busy = { exitCode: 125, stderr: "Error: acquiring lock 3 for layer: resource temporarily unavailable" };
  const doubts: Partial<RunResult>[] = [
    busy,
    { exitCode: 125 },
    { exitCode: 125, stderr: "Error: inspecting object: layer not known" },
    { ended: "signal", exitCode: 137, stderr: "Error: inspecting object: x: image not known" },
    { ended: "deadline", exitCode: 143 },
    { stdout: '[{"Id": "1' },
    { stdout: "[]" },
  ];
  for (const doubt of doubts) {
    using runner = new FakeRunner().expect(/^podman info/, json(PODMAN_INFO))
      .expect(/^podman image inspect x$/, doubt).expect(/^podman image inspect x$/, present);
    const image = await podmanProvider(hurried(runner)).prepare(named("x"), never, () => {});
    assert.deepEqual(image.handle, { id: "1f" });
  }
  using failing = new FakeRunner().expect(/^podman info/, json(PODMAN_INFO))
    .expect(/^podman image inspect x$/, busy).expect(/^podman image inspect x$/, busy);
  await assert.rejects(podmanProvider(hurried(failing)).prepare(named("x"), never, () => {}), {
    code: "image.failed",
    message: /whether image x is here: acquiring lock 3/,
    hint: /podman image inspect x/,
  });
  const words = [
    "Error: inspecting object: x: image not known",
    "Error: x: image not known",
    "Error: No such image: x",
    "Error response from daemon: no such image: x: No such image: x:latest",
  ];
  for (const stderr of words) {
    using runner = new FakeRunner().expect(/^podman info/, json(PODMAN_INFO))
      .expect(/^podman image inspect x$/, { exitCode: 125, stderr })
      .expect(/^podman pull -q /).expect(/^podman image inspect x$/, present);
    await podmanProvider(hurried(runner)).prepare(named("x"), never, () => {});
  }
});

test("prepare() tells why an image cannot be pulled, and asks again the next time", async () => {
  const rows: [Partial<RunResult>, RegExp, RegExp][] = [
    [{ exitCode: 1, stderr: "Error response from daemon: pull access denied for none" }, /denied/, /check the name/],
    [{ exitCode: 1, stderr: "dial tcp: lookup x: no such host" }, /no such host/, /docker load/],
    [{ ended: "deadline", exitCode: 143 }, /did not end within/, /by hand/],
  ];
  for (const [reply, why, hint] of rows) {
    using runner = new FakeRunner().expect(/^docker info/, json(DOCKER_INFO));
    const provider = dockerProvider(deps(runner));
    for (let attempt = 0; attempt < 2; attempt++) {
      runner.expect(/image inspect/, { exitCode: 1, stderr: "Error: No such image: none" }).expect(
        /^docker pull -q none$/,
        reply,
      );
      await assert.rejects(provider.prepare(named("none"), never, () => {}), (error) => {
        assert.ok(error instanceof HarborError && error.code === "image.failed");
        assert.match(error.message, why);
        assert.match(error.hint!, hint);
        return true;
      });
    }
  }
});

test("E17: a registry that limits is asked three times in all, whatever is wanted from it afterwards", async () => {
  const absent = { exitCode: 1, stderr: "Error: No such image" };
  const limited = { exitCode: 1, stderr: "toomanyrequests: You have reached your pull rate limit." };
  using runner = new FakeRunner().expect(/^docker info/, json(DOCKER_INFO)).expect(/image inspect one$/, absent);
  for (let attempt = 0; attempt < 3; attempt++) runner.expect(/^docker pull -q one$/, limited);
  runner.expect(/image inspect library\/two:1$/, absent);
  const provider = dockerProvider(hurried(runner));
  for (const reference of ["one", "library/two:1"]) {
    await assert.rejects(provider.prepare(named(reference), never, () => {}), {
      code: "image.failed",
      message: /rate limit/,
      hint: /log in to docker\.io/,
    });
  }
});

test("docker's daemon is not asked to pull from a registry of which the user said something that it does not know", async () => {
  using runner = new FakeRunner().expect(/^docker info/, json(DOCKER_INFO))
    .expect(/image inspect r\.test\/x:1$/, { exitCode: 1, stderr: "Error: No such image" });
  const registries = new Map([["r.test", { insecure: true, mirrors: [] }]]);
  await assert.rejects(dockerProvider({ ...deps(runner), registries }).prepare(named("r.test/x:1"), never, () => {}), {
    code: "image.failed",
    message: /what registries\.r\.test says is unknown to docker's daemon/,
    hint: /no way to r\.test from here/,
  });
});

test("prepare() finds an image under another name of it, and never takes another image for it", async () => {
  const pin = `library/python@${AA}`;
  const absent = { exitCode: 1, stderr: "Error: No such image" };
  const alias = `localhost/gym-harbor/python:${"b".repeat(16)}`;
  const loaded = { Id: BB, RepoDigests: [], Os: "linux", Architecture: "amd64", Config: {} };
  const moved = { ...loaded, RepoDigests: [`python@${BB}`] };
  const rows: [string, string | undefined, [string, object | undefined][], string | undefined][] = [
    ["by its pin", undefined, [[pin, loaded]], undefined],
    ["by the spelling of the Dockerfile", undefined, [[pin, undefined], ["python:3.12", loaded]], "python:3.12"],
    ["by the name of a bundle", BB, [[pin, undefined], [alias, loaded]], alias],
    ["the tag moved on: pulled", undefined, [[pin, undefined], ["python:3.12", moved]], ""],
    ["another configuration: pulled", AA, [[pin, undefined], [
      `localhost/gym-harbor/python:${"a".repeat(16)}`,
      undefined,
    ], [
      "python:3.12",
      loaded,
    ]], ""],
  ];
  for (const [when, configDigest, looks, startedAs] of rows) {
    using runner = new FakeRunner().expect(/^docker info/, json(DOCKER_INFO));
    for (const [name, image] of looks) {
      runner.expect(new RegExp(`image inspect ${name}$`), image === undefined ? absent : json([image]));
    }
    if (startedAs === "") runner.expect(/^docker pull -q library/).expect(/image inspect library/, json([loaded]));
    const source = { kind: "named" as const, reference: pin, aliases: ["python:3.12"], configDigest };
    const image = await dockerProvider(deps(runner)).prepare(named("", { source }), never, () => {});
    assert.equal(image.reference, pin, when);
    assert.equal(image.alias, startedAs || undefined, when);
  }
});

test("offline nothing is pulled: prepare() says what is missing and what brings it", async () => {
  for (const reference of ["python:3.12", "hb__0123456789abcdef0123456789abcdef"]) {
    using runner = new FakeRunner().expect(/^docker info/, json(DOCKER_INFO)).expect(/image inspect/, {
      exitCode: 1,
      stderr: "Error: No such image",
    });
    const provider = dockerProvider({ ...deps(runner), offline: true });
    await assert.rejects(provider.prepare(named(reference), never, () => {}), {
      code: "image.failed",
      message: new RegExp(`Image ${reference} is not`),
      hint: /gym-harbor bundle import/,
      details: { reference, missing: reference },
    });
  }
});

test("E18: an image of another platform is named before it is started", async () => {
  using runner = new FakeRunner().expect(/^docker info/, json(DOCKER_INFO))
    .expect(/image inspect x$/, json([{ ...IMAGE, Os: "linux", Architecture: "arm64" }]));
  const provider = dockerProvider({ ...deps(runner), platform: "linux/amd64" });
  await assert.rejects(provider.prepare(named("x"), never, () => {}), {
    message: "x resolved to linux/arm64, not linux/amd64",
  });
});

test("local() tells what the engine has, in the words of records", async () => {
  using runner = new FakeRunner()
    .expect(
      /^docker image inspect python:3.12$/,
      json([{ ...IMAGE, Id: BB, Os: "linux", Architecture: "amd64", Config: { ...IMAGE.Config, Hostname: "build" } }]),
    )
    .expect(/^docker image inspect none$/, { exitCode: 1, stderr: "Error: No such image: none" });
  const provider = dockerProvider(deps(runner));
  assert.deepEqual(await provider.local!("python:3.12", never), {
    configDigest: BB,
    repoDigests: [`docker.io/library/python@${AA}`],
    config: {
      Entrypoint: ["/e"],
      Cmd: null,
      Env: ["A=b=c"],
      User: "u",
      WorkingDir: "/w",
      ExposedPorts: null,
      Healthcheck: null,
      Volumes: null,
    },
    platform: "linux/amd64",
  });
  assert.equal(await provider.local!("none", never), undefined);
});

test("local() knows podman's ways: bare digests, its own names and its short ones", async () => {
  using runner = new FakeRunner()
    .expect(/^podman image inspect docker.io\/library\/python:3.12$/, { exitCode: 125, stderr: "image not known" })
    .expect(
      /^podman image inspect python:3.12$/,
      json([{
        Id: BB.slice(7),
        RepoDigests: [`localhost/python@${AA}`],
        User: "u",
        Os: "linux",
        Architecture: "arm64",
        Healthcheck: { Test: ["CMD", "true"] },
        Config: {},
      }]),
    );
  const found = await podmanProvider(deps(runner)).local!("docker.io/library/python:3.12", never);
  assert.deepEqual(
    [found?.configDigest, found?.repoDigests, found?.platform, found?.config.User, found?.config.Healthcheck],
    [BB, [], "linux/arm64", "u", { Test: ["CMD", "true"] }],
  );
});

test("prepare() notes limits that the machine cannot hold, and refuses GPUs that it does not have", async () => {
  using runner = new FakeRunner()
    .expect(/^podman info/, json({ ...PODMAN_INFO, host: { ...PODMAN_INFO.host, cgroupControllers: [] } }))
    .expect(/^podman image inspect x$/, json([IMAGE]));
  const provider = podmanProvider(deps(runner));
  const { notes } = await provider.prepare(
    named("x", { limits: { cpus: 2, memoryMb: 64, storageMb: 10 } }),
    never,
    () => {},
  );
  assert.deepEqual(notes.map((note) => note.split(" ")[0]), ["cpus", "memory_mb", "storage_mb"]);
  await assert.rejects(provider.prepare(named("x", { limits: { gpus: 1 } }), never, () => {}), {
    code: "task.unsupported",
  });
});

test("open() refuses a variable that no command can have, before anything is started", async () => {
  using runner = new FakeRunner();
  const image = { reference: "x", workdir: "/", env: {}, user: "", entrypoint: [], notes: [], handle: { id: "1f" } };
  const spec: SandboxSpec = {
    image,
    owner: { run: "r", host: "h", pid: 1, start: "1" },
    episode: "0-0",
    role: "agent",
    env: { HUGE: "x".repeat(131_072) },
    workdir: undefined,
    user: undefined,
    network: "public",
    limits: {},
    ttlMs: 1000,
    readyTimeoutMs: 1000,
  };
  await assert.rejects(dockerProvider(deps(runner)).open(spec, never), { code: "task.unsupported", message: /"HUGE"/ });
});

test("an option that an engine does not have is refused by name before anything is started", async () => {
  using runner = new FakeRunner();
  for (const name of ["docker", "podman"] as const) {
    await assert.rejects(chooseSandbox(name, () => ({ ...deps(runner), options: { netwrk: "x" } }), never), {
      code: "usage",
      message: `unknown option sandbox.${name}.netwrk`,
      hint: /did you mean network\?/,
    });
  }
});

test("providerName() knows its own, upstream's and nobody's", () => {
  for (const name of ["docker", "podman", "namespace", "apptainer", "enroot", "host"]) {
    assert.equal(providerName(name), name);
  }
  assert.equal(providerName("singularity"), "apptainer");
  assert.throws(() => providerName("local"), { code: "not-built", hint: /--sandbox host/ });
  for (const name of ["opensandbox", "daytona", "e2b"]) {
    assert.throws(() => providerName(name), { code: "not-built", message: /not in this version/ });
  }
  assert.throws(() => providerName("dokcer"), { code: "usage", hint: /^did you mean docker\? there are/ });
  assert.throws(() => providerName("kubernetes"), { code: "usage", hint: /^there are docker/ });
});

test("chooseSandbox() takes docker when it answers, else podman, and names the ways on where nothing works", async () => {
  const down = { exitCode: 1, stderr: "Cannot connect to the Docker daemon" };
  const rows: [string, FakeRunner, string][] = [
    ["docker answers", new FakeRunner().expect(/^docker info/, json(DOCKER_INFO)), "docker"],
    ["only podman", new FakeRunner().expect(/^docker info/, down).expect(/^podman info/, json(PODMAN_INFO)), "podman"],
  ];
  for (const [when, runner, name] of rows) {
    using _ = runner;
    assert.equal((await chooseSandbox("auto", () => deps(runner), never)).name, name, when);
  }
  using neither = new FakeRunner().expect(/^docker info/, down).expect(
    /^podman info/,
    new HarborError("machine.lacks", "no podman"),
  ).expect(/^unshare --version/, new HarborError("machine.lacks", "no unshare"));
  await assert.rejects(chooseSandbox("auto", () => deps(neither), never), (error) => {
    assert.ok(error instanceof HarborError && error.code === "engine.missing");
    assert.match(error.message, /namespace: no unshare/);
    for (const way of [/Docker/, /podman/, /namespace/, /--sandbox host/]) assert.match(error.hint!, way);
    return true;
  });
});

test("chooseSandbox() by name says why it cannot be used, with the first step", async () => {
  using runner = new FakeRunner().expect(/^podman info/, new HarborError("machine.lacks", "no podman"));
  await assert.rejects(chooseSandbox("podman", () => deps(runner), never), {
    code: "engine.missing",
    message: /not installed/,
    hint: /install podman/,
  });
});

test("doctor reads id ranges and limits of open files", () => {
  assert.equal(hasRange("alice:100000:65536\n", "alice", 1000), true);
  assert.equal(hasRange("1000:100000:65536\n", "alice", 1000), true);
  assert.equal(hasRange("bob:100000:65536\nalice:1:0\n", "alice", 1000), false);
  assert.deepEqual(
    fileLimitFaults("Max open files            256                  4096                 files\n").map(({ what }) =>
      what
    ),
    ["only 256 open files are allowed"],
  );
  assert.deepEqual(fileLimitFaults("Max open files            1024                 4096                 files\n"), []);
});
