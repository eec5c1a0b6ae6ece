import assert from "node:assert/strict";
import { test } from "node:test";
import { resolveServices } from "../../../lib/compose/mod.ts";
import { HarborError } from "../../../lib/errors.ts";
import type { ImageConfig } from "../../../lib/images/config.ts";
import { imageWith, planCase, sidecar } from "../../support/compose.ts";

function resolved(file: string, config: ImageConfig = {}) {
  const plan = planCase(file);
  const images = Object.fromEntries(plan.services.map(({ name }) => [name, imageWith(config)]));
  return resolveServices(plan, images).services;
}
const argv = (file: string, service: string, config?: ImageConfig) =>
  resolved(file, config).find(({ name }) => name === service)!.argv;

test("resolveServices() makes a sidecar's argv of entrypoint and command, the image's where the file has none", () => {
  const image = { Entrypoint: ["/entry"], Cmd: ["serve"] };
  const rows: [keys: string, config: ImageConfig, wanted: string[]][] = [
    ["", image, ["/entry", "serve"]],
    ["command: other", image, ["/entry", "other"]],
    ["command: []", image, ["/entry"]],
    ["entrypoint: /own", image, ["/own"]],
    ["entrypoint: [/own]\ncommand: [a]", image, ["/own", "a"]],
    ["entrypoint: []\ncommand: [a]", image, ["a"]],
    ["", { Cmd: ["serve"] }, ["serve"]],
    ["command: run", {}, ["run"]],
  ];
  for (const [keys, config, wanted] of rows) assert.deepEqual(argv(sidecar(keys), "web", config), wanted, keys);
});

test("resolveServices() refuses a sidecar that has nothing to run", () => {
  const reason = (keys: string, config: ImageConfig) => {
    try {
      resolved(sidecar(keys), { ...config });
      return "accepted";
    } catch (error) {
      assert.ok(error instanceof HarborError);
      return `${error.code} ${error.message}`;
    }
  };
  const text =
    "task.unsupported Compose file was refused: service 'web': command is missing, and the image has neither ENTRYPOINT nor CMD";
  assert.equal(reason("", {}), text);
  assert.equal(reason("entrypoint: []", { Entrypoint: ["/x"], Cmd: ["y"] }), text);
});

test("resolveServices() starts beside the agent what the file makes main run, and nothing that only keeps it alive", () => {
  const image = { Entrypoint: ["/entry"], Cmd: ["serve"] };
  const rows: [keys: string, wanted: string[] | null][] = [
    ["{}", null],
    ["{command: [sh, -c, sleep infinity]}", null],
    ["{command: tail -f /dev/null}", null],
    ["{command: sleep 86400}", null],
    ["{command: bash -lc 'sleep infinity'}", null],
    ["{command: python server.py}", ["/entry", "python", "server.py"]],
    ["{entrypoint: []}", []],
    ["{entrypoint: sleep infinity}", []],
    ["{entrypoint: /own.sh}", ["/own.sh", "sh", "-c", "sleep infinity"]],
    ["{entrypoint: /own.sh, command: [a]}", ["/own.sh", "a"]],
  ];
  for (const [keys, wanted] of rows) assert.deepEqual(argv(`services: {main: ${keys}}`, "main", image), wanted, keys);
});

test("resolveServices() refuses to wait for the health of a service that has no check, its image's included", () => {
  const file = "services:\n  web: {image: x, command: a}\n  main: {depends_on: {web: {condition: service_healthy}}}\n";
  assert.throws(
    () => resolved(file),
    /service 'main': depends_on\.web waits for service_healthy, but neither file nor image has a healthcheck/,
  );
  const web = resolved(file, { Healthcheck: { Test: ["CMD", "ask"] } }).find(({ name }) => name === "web")!;
  assert.deepEqual(web.healthcheck?.probe, { argv: ["ask"] });
});

test("resolveServices() hands every setting of a member on", () => {
  const keys =
    "hostname: h\ncap_add: [NET_ADMIN]\ncap_drop: [CHOWN]\nread_only: true\ninit: true\nshm_size: 1k\nstop_signal: SIGINT\n" +
    "stop_grace_period: 2s\nulimits: {nofile: 9}\nextra_hosts: {a: 1.1.1.1}\nnetworks: {default: {aliases: [w]}}\ncommand: x\n" +
    "environment: {A: 1}\nworking_dir: /w\nuser: u\ncpus: 2";
  const { image: _image, ...web } = resolved(sidecar(keys)).find(({ name }) => name === "web")!;
  assert.deepEqual(web, {
    name: "web",
    member: {
      service: "web",
      aliases: ["w"],
      extraHosts: { a: "1.1.1.1" },
      capAdd: ["NET_ADMIN"],
      capDrop: ["CHOWN"],
      noNewPrivileges: false,
      hostname: "h",
      shmBytes: 1024,
      ulimits: { nofile: { soft: 9, hard: 9 } },
      init: true,
      readOnly: true,
    },
    mounts: [],
    dependsOn: [],
    healthcheck: null,
    env: { A: "1" },
    workdir: "/w",
    user: "u",
    limits: { cpus: 2 },
    argv: ["x"],
    stop: { stopSignal: "SIGINT", stopGraceMs: 2000 },
  });
});
