/** Groups of sandboxes without an engine: what lib/compose takes for granted when it starts the services of a task. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { networkInterfaces, tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { after, before, test } from "node:test";
import { systemClock } from "../../lib/runtime/clock.ts";
import { systemRunner } from "../../lib/runtime/runner.ts";
import type { Group, MemberSpec, Service, ServiceSpec } from "../../lib/sandbox/group.ts";
import { newRunId, thisOwner } from "../../lib/sandbox/owner.ts";
import { removeWhole } from "../../lib/sandbox/scratch.ts";
import type { Network, PreparedImage, Sandbox } from "../../lib/sandbox/provider.ts";
import type { NamespaceProvider } from "../../providers/namespace.ts";
import { folderProvider, needOf, oneId, unpackRootfs } from "../support/layers.ts";

const folder = mkdtempSync(join(tmpdir(), "gh-nsg-"));
const who = process.getuid?.() === 0 ? "root" : "a plain user";
const signal = AbortSignal.timeout(300_000);
const owner = thisOwner(newRunId());
const base = unpackRootfs("host", join(folder, "base"));
const bare = join(folder, "bare");
let provider: NamespaceProvider;
let image: PreparedImage;
let bareImage: PreparedImage;
let episodes = 0;

before(async () => {
  mkdirSync(join(bare, "server"), { recursive: true });
  mkdirSync(join(bare, "www"));
  writeFileSync(join(bare, "www/index.html"), "served");
  const busybox = spawnSync("sh", ["-c", "command -v busybox"], { encoding: "utf8" }).stdout.trim();
  for (const name of ["httpd", "true"]) {
    spawnSync("cp", [busybox, join(bare, "server", name)]);
    chmodSync(join(bare, "server", name), 0o755);
  }
  provider = folderProvider({
    runner: systemRunner(),
    clock: systemClock,
    env: process.env,
    emit: () => {},
    scratch: join(folder, "scratch"),
    options: {},
  }, [{ name: "base", trees: [base] }, { name: "bare", trees: [bare] }]);
  image = await provider.prepare(needOf("base"), signal, () => {});
  bareImage = await provider.prepare(needOf("bare"), signal, () => {});
});
after(async () => {
  await provider.sweep({ run: owner.run, evenAlive: true });
  await provider[Symbol.asyncDispose]();
  removeWhole(folder);
});

const MEMBER: Omit<MemberSpec, "service"> = {
  aliases: [],
  mounts: [],
  extraHosts: {},
  capAdd: [],
  capDrop: [],
  noNewPrivileges: false,
  ulimits: {},
};
const aliasesOf = (service: string) => (service === "db" ? ["store"] : []);
const openGroup = (more: { network?: Network; volumes?: string[]; members?: string[] } = {}): Promise<Group> =>
  provider.openGroup({
    owner,
    episode: `${++episodes}`,
    network: more.network ?? "no-network",
    volumes: more.volumes ?? [],
    members: (more.members ?? ["main", "db", "web"]).map((service) => ({ service, aliases: aliasesOf(service) })),
  }, signal);
const openMain = (group: Group, member: Partial<MemberSpec> = {}): Promise<Sandbox> =>
  group.openMain(
    {
      image,
      owner,
      episode: `${episodes}`,
      role: "agent",
      env: {},
      workdir: undefined,
      user: undefined,
      network: "public",
      limits: {},
      ttlMs: 600_000,
      readyTimeoutMs: 60_000,
    },
    { ...MEMBER, service: "main", ...member },
    signal,
  );
const start = (group: Group, service: string, argv: string[], more: Partial<ServiceSpec> = {}): Promise<Service> =>
  group.startService({
    ...MEMBER,
    service,
    aliases: aliasesOf(service),
    image,
    argv,
    env: {},
    limits: {},
    ttlMs: 600_000,
    ...more,
  }, signal);

const out = async (box: Pick<Sandbox, "exec">, script: string, user?: string) => {
  const command = {
    run: { script },
    purpose: "server" as const,
    deadlineMs: 60_000,
    ...(user !== undefined && { user }),
  };
  const { stdout, stderr } = await box.exec(command, signal);
  return `${stdout}${stderr}`.trim();
};
const serving = (port: number) => [
  "perl",
  "-MIO::Socket::INET",
  "-e",
  `$s = IO::Socket::INET->new(Listen => 5, LocalPort => ${port}, ReuseAddr => 1) or die; while ($c = $s->accept) { close $c }`,
];
const connect = (host: string, port: number) =>
  `perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(PeerAddr => "${host}", PeerPort => ${port}, Timeout => 3) ? "connected" : "no: $@"'`;
async function untilServing(box: Pick<Sandbox, "exec">, host: string, port: number): Promise<string> {
  for (let left = 40; left > 0; left--) {
    if (await out(box, connect(host, port)) === "connected") return "connected";
    await systemClock.sleep(100);
  }
  return `${host}:${port} is not reached`;
}
const remains = async (): Promise<string[]> => {
  const left = (await provider.list({ run: owner.run })).map(({ id }) => id);
  const holders = spawnSync("ps", ["-eo", "args", "-ww"], { encoding: "utf8" }).stdout.split("\n")
    .filter((line) => line.includes(folder));
  return [...left, ...holders];
};

test(`groups as ${who}: members find one another by name and alias on equal ports, and all goes with the group`, async () => {
  {
    await using group = await openGroup();
    const db = await start(group, "db", serving(5432));
    await start(group, "web", serving(5432));
    await using main = await openMain(group);
    for (const name of ["db", "store", "web"]) assert.equal(await untilServing(main, name, 5432), "connected", name);
    await main.exec({
      run: { script: `(${serving(81).map((word) => `'${word}'`).join(" ")} &) >/dev/null 2>&1` },
      purpose: "agent",
      deadlineMs: 9000,
    }, signal);
    assert.equal(await untilServing(db, "main", 81), "connected", "main from a sidecar");
    assert.match(await out(main, connect("127.0.0.1", 5432)), /^no:/, "each has a network of its own");
    assert.notDeepEqual(await remains(), []);
  }
  assert.deepEqual(await remains(), []);
});

test(`groups as ${who}: without a network neither the outside nor this machine is reached`, async () => {
  const server = createServer((socket) => socket.destroy());
  await new Promise<void>((listening) => server.listen(0, "0.0.0.0", listening));
  const { port } = server.address() as { port: number };
  const own = Object.values(networkInterfaces()).flat().find((one) => one?.family === "IPv4" && !one.internal)?.address;
  try {
    await using group = await openGroup();
    await start(group, "db", serving(80));
    await using main = await openMain(group);
    assert.equal(main.network, "no-network");
    assert.equal(await untilServing(main, "db", 80), "connected");
    for (const [host, to] of [["1.1.1.1", 53], [own ?? "127.0.0.1", port], ["10.213.0.1", port]] as const) {
      assert.match(await out(main, connect(host, to)), /^no:/, `${host}:${to}`);
    }
    const started = performance.now();
    assert.match(await out(main, connect("deb.debian.org", 80)), /^no:/);
    assert.ok(performance.now() - started < 5000, "a name that there is not is told soon");
    assert.equal(await out(main, "env | grep -ci proxy"), "0");
  } finally {
    server.close();
  }
});

test(`groups as ${who}: a public group goes out through the proxy, and straight to its own members`, async () => {
  await using group = await openGroup({ network: "public" });
  await start(group, "db", serving(80));
  await using main = await openMain(group);
  assert.equal(main.network, "public");
  assert.equal(await untilServing(main, "db", 80), "connected");
  assert.match(
    await out(main, "echo $http_proxy; echo $no_proxy"),
    /^http:\/\/127\.0\.0\.1:\d+\n.*\bdb,store\b.*10\.213\.0\.0\/24$/,
  );
  assert.match(await out(main, "curl -sS -m 10 http://127.0.0.2:1/ --noproxy '' -x $http_proxy"), /loopback/);
});

test(`groups as ${who}: a sidecar has its folder, environment, limits, names and shared memory`, async () => {
  await using group = await openGroup();
  const script =
    `pwd; id -u; echo "$TOKEN|$PATH|$TWO"; ulimit -n; df -k /dev/shm | tail -n 1; hostname; cat /etc/hosts; echo end; sleep 600`;
  const db = await start(group, "db", ["/bin/sh", "-c", script], {
    env: { TOKEN: "s3cret", PATH: "/usr/bin:/bin", TWO: "a\nb" },
    workdir: "/usr",
    ...(!oneId() && { user: "1234" }),
    ulimits: { nofile: { soft: 512, hard: 600 } },
    shmBytes: 32 << 20,
    hostname: "box",
    extraHosts: { elsewhere: "192.0.2.77" },
    capDrop: ["ALL"],
    noNewPrivileges: true,
  });
  let said = "";
  for (let left = 40; left > 0 && !said.includes("\nend\n"); left--) {
    await systemClock.sleep(100);
    said = await db.tail(10_000);
  }
  const id = oneId() ? "0" : "1234";
  for (
    const part of [
      `/usr\n${id}\n`,
      "s3cret|/usr/bin:/bin|a\nb\n",
      "\n512\n",
      "32768",
      "\nbox\n",
      "192.0.2.77\telsewhere",
    ]
  ) {
    assert.ok(said.includes(part), `${JSON.stringify(part)} in ${said}`);
  }
  assert.equal(await out(db, "pwd; id -u"), `/usr\n${id}`, "a probe runs as the service does");
  const status = await out(db, "grep -E 'CapBnd|NoNewPrivs' /proc/self/status", "root");
  assert.match(status, /CapBnd:\s*0+\b/);
  assert.match(status, /NoNewPrivs:\s*1/);
});

test(`groups as ${who}: an image without a shell serves, and its programs as probes`, async () => {
  await using group = await openGroup();
  const web = await start(group, "web", ["/server/httpd", "-f", "-p", "80", "-h", "/www"], { image: bareImage });
  await using main = await openMain(group);
  assert.equal(await untilServing(main, "web", 80), "connected");
  const probe = (argv: string[]) => web.exec({ run: { argv }, purpose: "server", deadlineMs: 10_000 }, signal);
  assert.equal((await probe(["/server/true"])).exitCode, 0);
  assert.notEqual((await probe(["/server/none"])).exitCode, 0);
  assert.equal(
    (await web.exec({ run: { script: "true" }, purpose: "server", deadlineMs: 10_000 }, signal)).exitCode,
    127,
  );
});

test(`groups as ${who}: volumes are shared and get the image's files, binds are read-only where asked, tmpfs is one's own`, async () => {
  const source = join(folder, "conf");
  mkdirSync(source);
  writeFileSync(join(source, "file"), "from the task");
  chmodSync(source, 0o755);
  await using group = await openGroup({ volumes: ["data"] });
  const db = await start(group, "db", ["sleep", "600"], {
    mounts: [
      { kind: "volume", name: "data", target: "/etc/skeleton/deep", readOnly: false, noCopy: false },
      { kind: "volume", name: "bins", target: "/usr/lib/terminfo", readOnly: false, noCopy: false },
      { kind: "bind", source, target: "/conf", readOnly: true },
      { kind: "bind", source: join(source, "file"), target: "/etc/one.conf", readOnly: true },
      { kind: "scratch", target: "/scratch" },
      { kind: "tmpfs", target: "/quick", options: "size=1m,mode=1777" },
    ],
  });
  await using main = await openMain(group, {
    mounts: [
      { kind: "volume", name: "data", target: "/shared", readOnly: true, noCopy: true },
      { kind: "volume", name: "bins", target: "/bins", readOnly: true, noCopy: true },
      { kind: "bind", source, target: "/conf", readOnly: false },
    ],
  });
  assert.notEqual(await out(main, "ls /bins"), "", "copied up at its first target");
  assert.equal(
    await out(
      db,
      "echo fresh > /etc/skeleton/deep/made; cat /conf/file /etc/one.conf; (echo x > /conf/no) 2>/dev/null || echo :denied",
    ),
    "from the taskfrom the task:denied",
  );
  assert.equal(await out(main, "cat /shared/made; (echo x > /shared/no) 2>/dev/null || echo denied"), "fresh\ndenied");
  assert.equal(await out(db, "echo y > /scratch/a && echo y > /quick/a && grep -c ' /quick tmpfs' /proc/mounts"), "1");
  await out(main, "echo back > /conf/back");
  assert.equal(readFileSync(join(source, "back"), "utf8"), "back\n");
});

test(`groups as ${who}: a mount is not led astray by a link of the image`, async () => {
  const victim = join(folder, "victim");
  mkdirSync(victim);
  const tree = join(folder, "linked");
  mkdirSync(tree);
  spawnSync("ln", ["-s", victim, join(tree, "data")]);
  const own = folderProvider({
    runner: systemRunner(),
    clock: systemClock,
    env: process.env,
    emit: () => {},
    scratch: join(folder, "scratch-2"),
    options: {},
  }, [{ name: "linked", trees: [tree, base] }]);
  try {
    const linked = await own.prepare(needOf("linked"), signal, () => {});
    await using group = await own.openGroup({
      owner,
      episode: "l",
      network: "no-network",
      volumes: [],
      members: [{ service: "db", aliases: [] }],
    }, signal);
    const db = await group.startService({
      ...MEMBER,
      service: "db",
      image: linked,
      argv: ["sleep", "600"],
      env: {},
      limits: {},
      ttlMs: 60_000,
      mounts: [{ kind: "tmpfs", target: "/data/x", options: "" }],
    }, signal);
    assert.equal(await out(db, "touch /data/x/f; grep -c tmpfs /proc/mounts >/dev/null && ls /data/x"), "f");
    assert.deepEqual(readdirSync(victim), []);
  } finally {
    await own[Symbol.asyncDispose]();
  }
});

test(`groups as ${who}: a service tells when it ended, with what code, and all that it printed`, async () => {
  await using group = await openGroup();
  const once = await start(group, "db", ["/bin/sh", "-c", "echo begun; echo wrong >&2; sleep 0.5; exit 7"]);
  assert.deepEqual(await once.state(signal), { state: "running" });
  assert.deepEqual(await once.ended(signal), { exitCode: 7 });
  assert.deepEqual(await once.state(signal), { state: "ended", exitCode: 7 });
  assert.deepEqual((await once.tail(1000)).split("\n").filter(Boolean).sort(), ["begun", "wrong"]);
  assert.equal((await once.tail(6)).length, 6);
  await assert.rejects(out(once, "true"), { code: "sandbox.lost" });
  const chatty = await start(group, "web", ["/bin/sh", "-c", "seq 1 400000"]);
  await chatty.ended(signal);
  const log = join(folder, "log");
  await chatty.saveLog(log, 2 << 20);
  const text = readFileSync(log, "utf8");
  assert.match(text, /^1\n2\n/);
  assert.match(text, /400000\n$/);
  assert.ok(text.length < (2 << 20) + 2000, `${text.length} bytes`);
});

test(`groups as ${who}: a program that is not there, and an aborted wait, are told`, async () => {
  await using group = await openGroup();
  await assert.rejects(start(group, "db", ["/no/such/program"]), (error: Error & { code?: string }) => {
    assert.equal(error.code, "sandbox.failed");
    assert.match(error.message, /Service db.*\/no\/such\/program/);
    return true;
  });
  const web = await start(group, "web", ["sleep", "600"]);
  const abort = new AbortController();
  setTimeout(() => abort.abort(new Error("enough")), 100);
  await assert.rejects(web.ended(abort.signal), /enough/);
});

test(`groups as ${who}: a service may share the network of another, and one may have none`, async () => {
  await using group = await openGroup({ members: ["main", "db"] });
  await start(group, "db", ["sleep", "600"]);
  await start(group, "web", serving(80), { networkOf: "db" });
  const alone = await start(group, "alone", ["sleep", "600"], { noNetwork: true });
  await using main = await openMain(group);
  assert.equal(await untilServing(main, "db", 80), "connected");
  assert.match(await out(alone, connect("10.213.0.3", 80)), /^no:/);
});

test(`groups as ${who}: a service is asked to end where its author gives it time`, async () => {
  const source = join(folder, "ending");
  mkdirSync(source);
  chmodSync(source, 0o777);
  {
    await using group = await openGroup();
    await start(group, "db", [
      "/bin/sh",
      "-c",
      "trap 'echo ended > /out/word; exit 0' INT; while :; do sleep 0.1; done",
    ], {
      stopSignal: "SIGINT",
      stopGraceMs: 5000,
      mounts: [{ kind: "bind", source, target: "/out", readOnly: false }],
    });
    await systemClock.sleep(300);
  }
  assert.equal(readFileSync(join(source, "word"), "utf8"), "ended\n");
});

test(`groups as ${who}: main that is kept keeps its group, and a sweep of its run removes it`, async () => {
  const group = await openGroup();
  await start(group, "db", serving(80));
  const main = await openMain(group);
  main.keep();
  await main[Symbol.asyncDispose]();
  await group[Symbol.asyncDispose]();
  await systemClock.sleep(200);
  assert.notDeepEqual(await remains(), []);
  await provider.sweep({ run: owner.run, evenAlive: true });
  assert.deepEqual(await provider.list({ run: owner.run }), []);
});
