import assert from "node:assert/strict";
import { test } from "node:test";
import { planCase, reasonCase, sidecar } from "../../support/compose.ts";

const FILES = {
  "environment/seed.json": "{}",
  "environment/data/a.txt": "a",
  "environment/link": { symlink: "data" },
  "environment/data/out": { symlink: "/etc" },
  "tests/test.sh": "true",
  "secret.txt": "x",
};
const file = (volumes: string) =>
  sidecar(`volumes:\n${volumes.replace(/^(?=.)/gm, "  ")}`) + "volumes: {store: {}, other: }\n";
const mounts = (volumes: string) =>
  planCase({ file: file(volumes), files: FILES }).services.find((one) => one.name === "web")!.mounts;
const reason = (volumes: string) => reasonCase({ file: file(volumes), files: FILES });

test("readCompose() takes binds of environment/, named volumes, anonymous ones and tmpfs in both forms", () => {
  const bind = (source: string, target: string, readOnly = false) => ({ kind: "bind", source, target, readOnly });
  const named = (name: string, target: string, more = {}) => {
    return { kind: "volume", name, target, readOnly: false, noCopy: false, ...more };
  };
  const rows: [volumes: string, wanted: unknown][] = [
    ["- ./seed.json:/app/seed.json:ro", bind("environment/seed.json", "/app/seed.json", true)],
    ["- ./data:/data/", bind("environment/data", "/data")],
    ["- ${CONTEXT_DIR}/data:/data:rw,Z", bind("environment/data", "/data")],
    ["- .:/all", bind("environment", "/all")],
    ["- ./not-there:/new", bind("environment/not-there", "/new")],
    [
      "- {type: bind, source: ./data, target: /d, read_only: 'true', bind: {create_host_path: false}}",
      bind("environment/data", "/d", true),
    ],
    ["- store:/var/lib/db", named("store", "/var/lib/db")],
    ["- store:/x:ro,nocopy", named("store", "/x", { readOnly: true, noCopy: true })],
    ["- {type: volume, source: other, target: /x, volume: {nocopy: true}}", named("other", "/x", { noCopy: true })],
    ["- /cache", { kind: "scratch", target: "/cache" }],
    ["- {type: volume, target: /cache}", { kind: "scratch", target: "/cache" }],
    ["- {type: tmpfs, target: /t, tmpfs: {size: 64m, mode: 1777}}", {
      kind: "tmpfs",
      target: "/t",
      options: "size=67108864,mode=1777",
    }],
    ["- {type: tmpfs, target: /dev/shm}", { kind: "tmpfs", target: "/dev/shm", options: "" }],
  ];
  for (const [volumes, wanted] of rows) assert.deepEqual(mounts(volumes), [wanted], volumes);
});

test("readCompose() mounts nothing of this machine, and nothing over what is the harness's own", () => {
  const outside = "lies outside of environment/";
  const rows: [volumes: string, why: string][] = [
    ["- /etc:/host", `source '/etc' ${outside}`],
    ["- /var/run/docker.sock:/var/run/docker.sock", `source '/var/run/docker.sock' ${outside}`],
    ["- ..:/task", `source '..' ${outside}`],
    ["- ../tests:/t", `source '../tests' ${outside}`],
    ["- ./data/../../secret.txt:/t", `source './data/../../secret.txt' ${outside}`],
    ["- ${CONTEXT_DIR}/../..:/shared", `source '../..' ${outside}`],
    ["- ~/x:/x", "source '~/x' lies in a home folder, must lie in environment/"],
    ["- ./link:/x", "source './link' leads over the link link"],
    ["- ./link/a.txt:/x", "source './link/a.txt' leads over the link link"],
    ["- ./data/out:/x", "source './data/out' leads over the link data/out"],
    ["- ./seed.json/deeper:/x", "source './seed.json/deeper' goes on below a file"],
    ["- {type: bind, source: ./gone, target: /x, bind: {create_host_path: false}}", "source './gone' does not exist"],
    ["- undeclared:/x", "names the volume 'undeclared', which the file does not declare under volumes"],
    ["- store:relative", "target 'relative' is not absolute"],
    ["- store:/", "target '/' is the whole root"],
    ["- store:/a/../b", "target '/a/../b' holds .."],
    ["- store:/logs/verifier", "target '/logs/verifier' is the harness's own"],
    ["- store:/tests", "target '/tests' is the harness's own"],
    ["- store:/solution/x", "target '/solution/x' is the harness's own"],
    ["- store:/proc", "target '/proc' is the system's own"],
    ["- store:/x:shared", "has the mode 'shared', which is not supported"],
    ["- a:b:c:d", "'a:b:c:d' is not source:target[:mode]"],
    ["- {type: npipe, source: a, target: /x}", "type 'npipe' is not supported"],
    ["- {type: volume, source: store}", "has no target"],
    ["- {type: volume, source: store, target: /x, volume: {subpath: a}}", "volume.subpath is not supported"],
  ];
  for (const [volumes, why] of rows) {
    const at = why.startsWith("type ") || why.startsWith("volume.") ? "volumes[0]." : "volumes[0] ";
    assert.equal(reason(volumes), `service 'web': ${at}${why}`, volumes);
  }
});

test("readCompose() drops main's log mounts, and gives a sidecar that mounts a log folder main's own", () => {
  const plan = planCase(
    "services:\n" +
      "  main: {volumes: ['${HOST_VERIFIER_LOGS_PATH}:${ENV_VERIFIER_LOGS_PATH}', '${HOST_ARTIFACTS_PATH}:/elsewhere']}\n" +
      "  web: {image: x, volumes: ['${HOST_VERIFIER_LOGS_PATH}:/evidence']}\n",
  );
  const of = (name: string) => plan.services.find((one) => one.name === name)!.mounts;
  const shared = { kind: "volume", name: "logs-verifier-of-main", readOnly: false, noCopy: true };
  assert.deepEqual(of("web"), [{ ...shared, target: "/evidence" }]);
  assert.deepEqual(of("main"), [{ ...shared, target: "/logs/verifier" }]);
  assert.deepEqual(plan.volumes, ["logs-verifier-of-main"]);
});

test("readCompose() keeps a volume once for all who mount it", () => {
  const plan = planCase(
    "services:\n  a: {image: x, volumes: ['v:/a']}\n  b: {image: x, volumes: ['v:/b']}\nvolumes: {v: {labels: [x]}}\n",
  );
  assert.deepEqual(plan.volumes, ["v"]);
});
