import { test } from "node:test";
import assert from "node:assert/strict";
import {
  copyInArgv,
  execArgv,
  fullReference,
  listArgv,
  type Program,
  removeArgv,
  runArgv,
  type RunRequest,
} from "../../providers/_oci_argv.ts";

const docker: Program = { engine: "docker", path: "docker" };
const podman: Program = { engine: "podman", path: "podman" };
const request: RunRequest = {
  name: "gym-harbor-r-0-0-agent",
  labels: { "gym-harbor.run": "r", "gym-harbor.pid": "1" },
  image: "sha256:1f",
  network: "public",
  publicNetwork: undefined,
  limits: {},
  pids: undefined,
  proxies: true,
  extra: [],
};
const words = (argv: string[]) => argv.join(" ");

test("runArgv() starts our own shell as root, attached, labelled, never pulling", () => {
  for (const program of [docker, podman]) {
    const argv = runArgv(program, request);
    assert.match(
      words(argv),
      new RegExp(
        `^${program.path} run -i --rm --sig-proxy=false --name gym-harbor-r-0-0-agent --label gym-harbor.run=r --label gym-harbor.pid=1 --pull never --log-driver none --no-healthcheck --user 0 --workdir / `,
      ),
    );
    assert.match(words(argv), / --entrypoint \/bin\/sh sha256:1f -c /);
  }
});

test("runArgv() has docker bring an init, and podman a shell that reaps", () => {
  assert.ok(runArgv(docker, request).includes("--init"));
  assert.equal(runArgv(podman, request).includes("--init"), false);
  assert.equal(runArgv(podman, request).at(-3), '/bin/sh -c "$1"; exit "$?"');
});

test("runArgv() says networks and limits as the engine takes them", () => {
  const rows: [Partial<RunRequest>, RegExp][] = [
    [{ network: "no-network" }, / --network none /],
    [{ network: "host" }, / --network host /],
    [{ publicNetwork: "mine" }, / --network mine /],
    [{ limits: { cpus: 1.5 } }, / --cpus 1\.5 /],
    [{ limits: { memoryMb: 2048 } }, / --memory 2048m --memory-swap 2048m /],
    [{ pids: 4096 }, / --pids-limit 4096 /],
    [{ extra: ["--cap-drop", "ALL"] }, / --cap-drop ALL --entrypoint /],
  ];
  for (const [more, wanted] of rows) assert.match(words(runArgv(docker, { ...request, ...more })), wanted);
  for (const proxies of [true, false]) {
    assert.doesNotMatch(words(runArgv(docker, { ...request, proxies })), /--http-proxy/);
    assert.equal(/ --http-proxy=false /.test(words(runArgv(podman, { ...request, proxies }))), !proxies);
  }
  assert.doesNotMatch(words(runArgv(docker, request)), /--network|--cpus|--memory|--pids-limit|--gpus/);
  assert.match(words(runArgv(docker, { ...request, limits: { gpus: 2 } })), / --gpus 2 /);
  assert.match(
    words(runArgv(podman, { ...request, limits: { gpus: 2 } })),
    /--device nvidia\.com\/gpu=0 --device nvidia\.com\/gpu=1/,
  );
});

test("execArgv() carries names of variables, never values, and only a fixed program", () => {
  const argv = execArgv(docker, { name: "box", user: "alice", archive: false, envNames: ["a.b"], shell: "/bin/bash" });
  assert.match(words(argv), /^docker exec -i --user alice --env a\.b box \/bin\/bash -c IFS= read -r gym_S;/);
  assert.doesNotMatch(
    words(execArgv(podman, { name: "box", user: undefined, archive: true, envNames: [], shell: "/bin/sh" })),
    /--user|--env/,
  );
});

test("removeArgv() never waits for a first process, and takes volumes along", () => {
  assert.equal(words(removeArgv(docker, ["a", "b"])), "docker rm -f -v a b");
  assert.equal(words(removeArgv(podman, ["a"])), "podman rm -f -t 0 -v a");
});

test("other command lines", () => {
  assert.equal(
    words(listArgv(docker, "gym-harbor.run=r")),
    "docker ps -a -q --no-trunc --filter label=gym-harbor.run=r",
  );
  assert.equal(words(copyInArgv(podman, "box")), "podman cp - box:/");
});

test("fullReference() names what a short name stands for", () => {
  const rows: [string, string][] = [
    ["python", "docker.io/library/python"],
    ["python:3.12", "docker.io/library/python:3.12"],
    ["library/python:3.12", "docker.io/library/python:3.12"],
    ["alexgshaw/fix-git:1", "docker.io/alexgshaw/fix-git:1"],
    ["ghcr.io/a/b:1", "ghcr.io/a/b:1"],
    ["localhost/a", "localhost/a"],
    ["localhost:5000/a", "localhost:5000/a"],
    ["reg:5000/a@sha256:00", "reg:5000/a@sha256:00"],
  ];
  for (const [reference, full] of rows) assert.equal(fullReference(reference), full);
});
