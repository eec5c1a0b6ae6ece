import { test } from "node:test";
import assert from "node:assert/strict";
import {
  type Attachment,
  memberFlags,
  networkArgv,
  networkFlags,
  serviceArgv,
  ulimitFlags,
} from "../../providers/_oci_group_argv.ts";

const docker = { engine: "docker", path: "docker" } as const;
const podman = { engine: "podman", path: "podman" } as const;
const attachment = (internal: boolean): Attachment => ({
  network: "net",
  subnet: "10.213.0.16/28",
  internal,
  nameServer: !internal,
  members: [{ service: "main", aliases: [] }, { service: "db", aliases: ["store"] }],
});
const DB = { service: "db", aliases: ["store"], extraHosts: { out: "192.0.2.1" }, hostname: "box" };
const NO_DNS = "--dns 127.0.0.1 --dns-opt timeout:1 --dns-opt attempts:1";

test("networkArgv() makes a network of a given subnet, and one without a way out where this machine is not reached", () => {
  const request = { name: "net", labels: { a: "1" }, subnet: "10.213.0.0/28", internal: false, nameServer: true };
  const begin = "network create --driver bridge --subnet 10.213.0.0/28 --label a=1";
  const rows: [typeof docker | typeof podman, boolean, boolean, string][] = [
    [docker, false, true, ""],
    [docker, true, true, " --internal --opt com.docker.network.bridge.inhibit_ipv4=true"],
    [podman, false, true, ""],
    [podman, false, false, " --disable-dns"],
    [podman, true, false, " --internal --disable-dns"],
  ];
  for (const [program, internal, nameServer, more] of rows) {
    const argv = networkArgv(program, { ...request, internal, nameServer }).join(" ");
    assert.equal(argv, `${program.path} ${begin}${more} net`);
  }
});

test("networkFlags() tells docker's name server the names, and podman's members one another's addresses", () => {
  const rows: [string, "docker" | "podman", boolean, string][] = [
    [
      "docker",
      "docker",
      false,
      "--network net --network-alias db --network-alias store --hostname box --add-host out:192.0.2.1",
    ],
    [
      "docker, no way out",
      "docker",
      true,
      `--network net --network-alias db --network-alias store ${NO_DNS} --hostname box --add-host out:192.0.2.1`,
    ],
    [
      "podman",
      "podman",
      false,
      "--network net --ip 10.213.0.19 --network-alias db --network-alias store --hostname box " +
      "--add-host main:10.213.0.18 --add-host db:10.213.0.19 --add-host store:10.213.0.19 --add-host out:192.0.2.1",
    ],
    [
      "podman, no way out",
      "podman",
      true,
      `--network net --ip 10.213.0.19 ${NO_DNS} --hostname box ` +
      "--add-host main:10.213.0.18 --add-host db:10.213.0.19 --add-host store:10.213.0.19 --add-host out:192.0.2.1",
    ],
  ];
  for (const [when, engine, internal, flags] of rows) {
    assert.equal(networkFlags(engine, attachment(internal), DB, undefined).join(" "), flags, when);
  }
  assert.deepEqual(networkFlags("docker", attachment(false), DB, "box1"), ["--network", "container:box1"]);
  assert.deepEqual(
    networkFlags("docker", attachment(true), { ...DB, noNetwork: true, hostname: undefined }, undefined),
    [
      ...["--network", "none", "--add-host", "out:192.0.2.1"],
    ],
  );
});

test("memberFlags() spells mounts, capabilities and sizes", () => {
  const member = {
    mounts: [
      { kind: "bind", source: "/s", target: "/t", readOnly: true },
      { kind: "volume", name: "data", target: "/d", readOnly: false, noCopy: true },
      { kind: "scratch", target: "/x" },
      { kind: "tmpfs", target: "/q", options: "" },
      { kind: "tmpfs", target: "/r", options: "size=1m" },
    ] as const,
    capAdd: ["SYS_PTRACE"],
    capDrop: ["ALL"],
    noNewPrivileges: true,
    shmBytes: 1024,
    ulimits: {},
    readOnly: true,
  };
  const flags = (selinux: boolean) =>
    memberFlags("docker", { ...member, mounts: [...member.mounts] }, (name) => `vol-${name}`, {
      selinux,
      ownLimits: "",
    });
  assert.equal(
    flags(false).join(" "),
    "--volume /s:/t:ro --volume vol-data:/d:rw,nocopy --volume /x --tmpfs /q --tmpfs /r:size=1m " +
      "--cap-add SYS_PTRACE --cap-drop ALL --security-opt no-new-privileges --shm-size 1024b --read-only",
  );
  assert.equal(flags(true)[1], "/s:/t:ro,z");
});

test("ulimitFlags() keeps podman from raising what was not asked for above what this process has", () => {
  const own = "Max processes             96365                96365                processes\n" +
    "Max open files            1024                 20000                files\n";
  const rows: ["docker" | "podman", Record<string, { soft: number; hard: number }>, string][] = [
    ["podman", {}, ""],
    ["docker", { nofile: { soft: 1, hard: 2 } }, "--ulimit nofile=1:2"],
    ["podman", { nofile: { soft: 1, hard: 2 } }, "--ulimit nofile=1:2 --ulimit nproc=32768:32768"],
    [
      "podman",
      { core: { soft: 0, hard: 0 } },
      "--ulimit core=0:0 --ulimit nproc=32768:32768 --ulimit nofile=20000:20000",
    ],
  ];
  for (const [engine, ulimits, flags] of rows) assert.equal(ulimitFlags(engine, ulimits, own).join(" "), flags);
});

test("serviceArgv() starts a sidecar's own program, never pulls, and never removes it by itself", () => {
  const run = {
    name: "n",
    labels: { a: "1" },
    image: "sha256:1f",
    flags: ["--network", "net"],
    limits: { cpus: 2, memoryMb: 64 },
    pids: 100,
    proxies: false,
    envFlags: ["--env-file", "/e"],
    spec: { argv: ["/entry", "-c", "$x"], workdir: "/w", user: "7", init: true, stopSignal: "SIGINT", ttlMs: 1500 },
  };
  const shared = "--cpus 2 --memory 64m --memory-swap 64m --pids-limit 100 --init --stop-signal SIGINT " +
    "--workdir /w --user 7 --env-file /e --entrypoint";
  assert.equal(
    serviceArgv(docker, run).join(" "),
    "docker run --detach --name n --label a=1 --pull never --no-healthcheck --log-driver json-file --log-opt max-size=64m " +
      `--network net ${shared} /entry sha256:1f -c $x`,
  );
  assert.equal(
    serviceArgv(podman, run).join(" "),
    "podman run --detach --name n --label a=1 --pull never --no-healthcheck --log-driver k8s-file --log-opt max-size=64mb " +
      `--systemd=false --timeout 2 --network net --http-proxy=false ${shared} ["/entry"] sha256:1f -c $x`,
  );
});
