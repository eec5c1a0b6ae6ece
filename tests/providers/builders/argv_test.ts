import { test } from "node:test";
import assert from "node:assert/strict";
import type { BuildRequest } from "../../../lib/images/builder.ts";
import { buildArgv, inspectArgv, pushArgv, type Tool, untagArgv } from "../../../providers/builders/_argv.ts";

const request: BuildRequest = {
  context: "/d/t/environment",
  dockerfile: "/d/t/environment/Dockerfile",
  name: "hb__1f",
  platform: "linux/amd64",
  args: { VERSION: "1 2", HTTP_PROXY: "http://p" },
  target: "final",
  labels: { a: "b c" },
  shmSize: "128m",
  ulimits: { nofile: "10:20" },
  noCache: true,
  pull: true,
  network: "none",
  cacheFrom: ["r/x:1", "type=registry,ref=r/y", "type=local,src=/c"],
  timeoutMs: 1,
  push: false,
  logFile: "/l",
};
const files = {
  context: request.context,
  dockerfile: request.dockerfile,
  iidFile: "/w/iid",
  metadataFile: "/w/m.json",
};
const docker: Tool = { name: "docker", path: "docker", kind: "buildx" };
const COMMON = "--platform linux/amd64 -t hb__1f --iidfile /w/iid -f /d/t/environment/Dockerfile " +
  "--build-arg VERSION --build-arg HTTP_PROXY=http://p --target final --label a=b c --shm-size 128m --ulimit nofile=10:20 --no-cache";

test("buildArgv() speaks to each tool", () => {
  const rows: [Tool, string][] = [
    [
      docker,
      `docker buildx build --load --provenance=false --sbom=false --metadata-file /w/m.json --progress plain ${COMMON} ` +
      "--pull --network none --cache-from r/x:1 --cache-from type=registry,ref=r/y --cache-from type=local,src=/c",
    ],
    [
      { name: "docker", path: "/usr/bin/docker", kind: "buildkit" },
      `/usr/bin/docker build --progress plain ${COMMON} --pull --network none --cache-from r/x:1 --cache-from r/y`,
    ],
    [
      { name: "docker", path: "docker", kind: "classic" },
      `docker build --force-rm ${COMMON} --pull --network none --cache-from r/x:1 --cache-from r/y`,
    ],
    [
      { name: "podman", path: "podman" },
      `podman build --format docker --layers --force-rm ${COMMON} --pull=always --network none --cache-from r/x:1 --cache-from r/y`,
    ],
    [
      { name: "buildah", path: "buildah", flags: ["--root", "/s/root"] },
      `buildah --root /s/root build --format docker --layers --force-rm ${COMMON} --pull=always --network none --cache-from r/x:1 --cache-from r/y`,
    ],
  ];
  for (const [tool, expected] of rows) {
    const { argv, env } = buildArgv(tool, request, files);
    assert.equal(argv.join(" "), `${expected} /d/t/environment`);
    assert.deepEqual(env, { VERSION: "1 2" }, "values of build arguments stay out of the command line");
  }
});

test("a plain request carries no flag that it does not need; what is here is not looked for elsewhere", () => {
  const plain = {
    ...request,
    args: {},
    cacheFrom: undefined,
    target: undefined,
    labels: undefined,
    shmSize: undefined,
  };
  const least = { ...plain, ulimits: undefined, noCache: undefined, pull: undefined, network: undefined };
  const rest = "--platform linux/amd64 -t hb__1f --iidfile /w/iid -f /d/t/environment/Dockerfile";
  const classic = buildArgv({ name: "docker", path: "docker", kind: "classic" }, least, files).argv.join(" ");
  assert.equal(classic, `docker build --force-rm ${rest} /d/t/environment`);
  const podman = buildArgv({ name: "podman", path: "podman" }, least, files).argv.join(" ");
  assert.equal(podman, `podman build --format docker --layers --force-rm ${rest} --pull=false /d/t/environment`);
});

test("E15: no Dockerfile is ever read from standard input", () => {
  for (const kind of ["buildx", "buildkit", "classic"] as const) {
    const { argv } = buildArgv({ name: "docker", path: "docker", kind }, request, files);
    assert.equal(argv[argv.indexOf("-f") + 1], request.dockerfile);
    assert.ok(!argv.includes("-"));
  }
});

test("pushing, looking and untagging in each tool's words", () => {
  const flags = { digestFile: "/w/d", insecure: true, retries: 2 };
  assert.equal(pushArgv(docker, "r/x", flags).join(" "), "docker push r/x");
  assert.equal(
    pushArgv({ name: "podman", path: "podman" }, "r/x", flags).join(" "),
    "podman push --digestfile /w/d --format v2s2 --tls-verify=false r/x",
  );
  const buildah: Tool = { name: "buildah", path: "buildah", flags: ["--root", "/s"] };
  assert.equal(
    pushArgv(buildah, "r/x", { ...flags, insecure: false }).join(" "),
    "buildah --root /s push --digestfile /w/d --format v2s2 --retry 2 r/x",
  );
  assert.equal(inspectArgv(buildah, "x").join(" "), "buildah --root /s inspect --type image x");
  assert.equal(inspectArgv(docker, "x").join(" "), "docker image inspect x");
  assert.equal(untagArgv(docker, "x").join(" "), "docker rmi --no-prune x");
});
