import { test } from "node:test";
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { proxiesSet, toolEnvironment } from "../../../providers/builders/_environment.ts";

const insecure = new Map([["registry.local:5000", { insecure: true, mirrors: [] }]]);
test("a tool's environment keeps logins and the machine's own configuration", () => {
  const folder = mkdtempSync(join(tmpdir(), "gh-env-"));
  try {
    const env = {
      CONTAINERS_CONF: "/machine.conf",
      REGISTRY_AUTH_FILE: "/a",
      DOCKER_CONFIG: "/d",
      BUILDAH_ISOLATION: "chroot",
    };
    const request = { env: { ...env, TMPDIR: "/home/nfs", LC_ALL: "de_DE" }, folder, registries: insecure };
    const podman = toolEnvironment({ name: "podman", path: "podman" }, request);
    assert.deepEqual(podman, {
      ...env,
      TMPDIR: folder,
      LC_ALL: "C",
      CONTAINERS_REGISTRIES_CONF: join(folder, "registries.conf"),
      CONTAINERS_CONF_OVERRIDE: join(folder, "containers.conf"),
    });
    assert.match(readFileSync(podman.CONTAINERS_REGISTRIES_CONF!, "utf8"), /registry\.local:5000/);
    const own = { ...request, env: { CONTAINERS_CONF_OVERRIDE: "/own.conf" } };
    assert.equal(toolEnvironment({ name: "buildah", path: "buildah" }, own).CONTAINERS_CONF_OVERRIDE, "/own.conf");
    const docker = toolEnvironment({ name: "docker", path: "docker", kind: "classic" }, request);
    assert.deepEqual([docker.DOCKER_BUILDKIT, docker.BUILDKIT_PROGRESS, docker.CONTAINERS_REGISTRIES_CONF], [
      "0",
      "plain",
      undefined,
    ]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("proxiesSet() tells names, never values", () => {
  assert.deepEqual(proxiesSet({ HTTPS_PROXY: "http://user:pw@p", no_proxy: "x", HTTP_PROXY: "", PATH: "/" }), [
    "HTTPS_PROXY",
    "no_proxy",
  ]);
});
