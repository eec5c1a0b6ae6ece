import { test } from "node:test";
import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { HarborError } from "../../../lib/errors.ts";
import type { BuilderOptions } from "../../../lib/images/builder.ts";
import { systemClock } from "../../../lib/runtime/clock.ts";
import type { Runner } from "../../../lib/runtime/runner.ts";
import { candidates, chooseBuilder } from "../../../providers/builders/mod.ts";
import { FakeRunner } from "../../support/runner.ts";

const PLATFORM = { platform: "linux/amd64" };
const REPOSITORY = { repository: "registry.local/team" };
const NONE =
  "No image builder found: install docker (buildah and podman need builds.repository), or name one with builds.tool";

const DOCKER = JSON.stringify({
  Client: { Version: "20.10.24" },
  Server: { Version: "20.10.24", Os: "linux", Arch: "amd64" },
});

/** A PATH that holds these programs, none of which is ever started: the Runner is a fake. */
function pathOf(...programs: string[]): { PATH: string; scratch: string } & Disposable {
  const folder = mkdtempSync(join(tmpdir(), "gh-path-"));
  for (const program of programs) {
    writeFileSync(join(folder, program), "");
    chmodSync(join(folder, program), 0o755);
  }
  return { PATH: folder, scratch: folder, [Symbol.dispose]: () => rmSync(folder, { recursive: true }) };
}

const choose = (
  options: Partial<BuilderOptions>,
  provider: string,
  path: { PATH: string; scratch: string },
  runner: Runner,
) =>
  chooseBuilder(
    { ...PLATFORM, ...options },
    { provider, runner, clock: systemClock, env: { PATH: path.PATH }, scratch: path.scratch },
    AbortSignal.timeout(10_000),
  );

test("candidates() follow where images go and who starts them", () => {
  const rows: [options: Partial<BuilderOptions>, provider: string, there: string[], tools: string[]][] = [
    [REPOSITORY, "docker", ["docker", "buildah", "podman"], ["docker", "buildah", "podman"]],
    [REPOSITORY, "podman", ["docker", "buildah", "podman"], ["podman", "docker", "buildah"]],
    [REPOSITORY, "enroot", ["podman"], ["podman"]],
    [{}, "docker", ["docker", "buildah", "podman"], ["docker"]],
    [{}, "podman", ["buildah", "podman"], ["podman"]],
    [{}, "docker", ["buildah", "podman"], []],
    [{ allowLocalPodman: true }, "docker", ["podman"], ["podman"]],
    [{ allowLocalPodman: false }, "podman", ["podman"], []],
    [{}, "namespace", ["docker", "buildah", "podman"], ["docker", "podman", "buildah", "namespace"]],
    [{}, "namespace", [], ["namespace"]],
    [REPOSITORY, "namespace", [], []],
    [{ tool: "buildah" }, "namespace", [], ["buildah"]],
    [{ tool: "docker" }, "docker", [], ["docker"]],
    [{ tool: "podman" }, "podman", [], ["podman"]],
    [{ tool: "buildah", ...REPOSITORY }, "docker", [], ["buildah"]],
  ];
  for (const [options, provider, there, tools] of rows) {
    const found = candidates({ ...PLATFORM, ...options }, { provider }, (tool) => there.includes(tool));
    assert.deepEqual(found, tools, JSON.stringify([options, provider, there]));
  }
});

test("a tool whose images nobody could start is refused in the words of the contract", () => {
  for (const tool of ["buildah", "podman"] as const) {
    assert.throws(() => candidates({ ...PLATFORM, tool }, { provider: "docker" }, () => true), {
      code: "usage",
      message: `${tool} keeps built images in a store no sandbox provider reads`,
    });
  }
});

test("docker's own store is not podman's", () => {
  assert.throws(() => candidates({ ...PLATFORM, tool: "docker" }, { provider: "podman" }, () => true), {
    code: "usage",
    message: "docker keeps built images in a store that --sandbox podman does not read",
  });
});

test("no tool on PATH, or none that may keep images here, says what to install", async () => {
  for (const programs of [[], ["buildah"], ["podman"], ["buildah", "podman"]]) {
    using path = pathOf(...programs);
    using runner = new FakeRunner();
    await assert.rejects(choose({}, "docker", path, runner), { code: "engine.missing", message: NONE });
  }
});

test("a tool on PATH whose engine does not answer is passed over, and named when none is left", async () => {
  using path = pathOf("docker", "podman");
  const down = {
    exitCode: 1,
    stdout: '{"Client":{"Version":"28"},"Server":null}',
    stderr: "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
  };
  using both = new FakeRunner().expect(/^docker version/, down).expect(/^podman info/, {
    stdout: JSON.stringify({
      host: { os: "linux", arch: "amd64" },
      store: { graphRoot: "/nowhere", graphDriverName: "overlay" },
    }),
  });
  assert.equal((await choose(REPOSITORY, "docker", path, both)).tool, "podman");
  using one = new FakeRunner().expect(/^docker version/, down);
  await assert.rejects(choose({}, "docker", path, one), (error) => {
    assert.ok(error instanceof HarborError);
    assert.deepEqual([error.code, error.message], ["engine.missing", NONE]);
    assert.match(error.hint ?? "", /docker's engine does not answer: Cannot connect to the Docker daemon/);
    return true;
  });
});

test("a named tool that does not answer says so itself", async () => {
  using path = pathOf();
  const gone = new HarborError("machine.lacks", "Cannot start docker: no such program");
  using runner = new FakeRunner().expect(/^docker version/, gone);
  await assert.rejects(choose({ tool: "docker" }, "docker", path, runner), {
    code: "engine.missing",
    message: /no such program/,
  });
});

test("the docker that is chosen is the client that can build best", async () => {
  using path = pathOf("docker");
  using runner = new FakeRunner().expect(/^docker version/, { stdout: DOCKER }).expect(/^docker buildx version/, {
    stdout: "github.com/docker/buildx v0.12.1\n",
  }).expect(/^docker info/, { stdout: "/nowhere\n" });
  assert.equal((await choose({}, "docker", path, runner)).tool, "docker");
});
