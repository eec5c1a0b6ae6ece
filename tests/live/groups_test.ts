/** Groups of sandboxes on real engines: what lib/compose takes for granted when it starts the services of a task. */
import { test } from "node:test";
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { networkInterfaces, tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { HarborError } from "../../lib/errors.ts";
import { systemClock } from "../../lib/runtime/clock.ts";
import { systemRunner } from "../../lib/runtime/runner.ts";
import type { Group, MemberSpec, Service, ServiceSpec } from "../../lib/sandbox/group.ts";
import { newRunId, type Owner, thisOwner } from "../../lib/sandbox/owner.ts";
import type { Network, PreparedImage, ProviderDeps, Sandbox, SandboxProvider } from "../../lib/sandbox/provider.ts";
import { dockerProvider } from "../../providers/docker.ts";
import { podmanProvider } from "../../providers/podman.ts";
import { buildWith, engineSkip, namedNeed } from "../support/engines.ts";

type Engine = "docker" | "podman";
const engines = { docker: dockerProvider, podman: podmanProvider } as const;
/** Its wget and httpd are BusyBox's own; python3 and the resolver of glibc come with the other. */
const BASE = "gym-base:host";
const soon = () => AbortSignal.timeout(120_000);
const SERVE = ["python3", "-u", "-m", "http.server", "80"];

interface Bench extends AsyncDisposable {
  engine: Engine;
  provider: SandboxProvider;
  image: PreparedImage;
  folder: string;
  owner: Owner;
  /** Every argv that was started. */
  trace: string[];
  group(more?: { network?: Network; volumes?: string[]; members?: string[]; owner?: Owner }): Promise<Group>;
  main(group: Group, member?: Partial<MemberSpec>, image?: PreparedImage): Promise<Sandbox>;
  service(group: Group, service: string, argv: string[], more?: Partial<ServiceSpec>): Promise<Service>;
  /** What of this bench's runs the engine still has: containers, networks, volumes. */
  remains(): string[];
  provide(options?: Record<string, unknown>): SandboxProvider;
}

const MEMBER: Omit<MemberSpec, "service"> = {
  aliases: [],
  mounts: [],
  extraHosts: {},
  capAdd: [],
  capDrop: [],
  noNewPrivileges: false,
  ulimits: {},
};

async function bench(engine: Engine): Promise<Bench> {
  const folder = mkdtempSync(join(tmpdir(), "gh-groups-"));
  const trace: string[] = [];
  const owner = thisOwner(newRunId());
  const provide = (options: Record<string, unknown> = {}) =>
    engines[engine](
      {
        runner: systemRunner((line) => trace.push(line)),
        clock: systemClock,
        env: process.env,
        emit: () => {},
        scratch: join(folder, owner.run),
        options,
      } satisfies ProviderDeps,
    );
  const provider = provide();
  const image = await provider.prepare(namedNeed(BASE), soon(), () => {});
  let episodes = 0;
  const ids = (...words: string[]) =>
    spawnSync(engine, [...words, "--filter", `label=gym-harbor.run=${owner.run}`], { encoding: "utf8" }).stdout
      .split("\n").filter(Boolean);
  const bench: Bench = {
    engine,
    provider,
    image,
    folder,
    owner,
    trace,
    provide,
    group: ({ network = "public", volumes = [], members = ["main", "db", "web"], owner: other } = {}) =>
      provider.openGroup!({
        owner: other ?? owner,
        episode: `${episodes++}`,
        network,
        volumes,
        members: members.map((service) => ({ service, aliases: service === "db" ? ["store"] : [] })),
      }, soon()),
    main: (group, member = {}, started = image) =>
      group.openMain(
        {
          image: started,
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
        soon(),
      ),
    service: (group, service, argv, more = {}) =>
      group.startService({
        ...MEMBER,
        service,
        aliases: service === "db" ? ["store"] : [],
        image,
        argv,
        env: {},
        limits: {},
        ttlMs: 600_000,
        ...more,
      }, soon()),
    remains: () => [
      ...ids("ps", "-a", "--format", "{{.Names}}"),
      ...ids("network", "ls", "--format", "{{.Name}}"),
      ...ids("volume", "ls", "--format", "{{.Name}}"),
    ],
    async [Symbol.asyncDispose]() {
      await provider.sweep({ run: owner.run, evenAlive: true }, soon());
      rmSync(folder, { recursive: true, force: true });
    },
  };
  return bench;
}

const out = async (box: Pick<Sandbox, "exec">, script: string) => {
  const { stdout, stderr } = await box.exec({ run: { script }, purpose: "server", deadlineMs: 60_000 }, soon());
  return `${stdout}${stderr}`.trim();
};

/** Python, because nothing else resolves names and connects on every base. */
const connect = (host: string, port: number) =>
  `python3 -c '
import socket, sys
try:
  s = socket.create_connection(("${host}", ${port}), 3); print("connected")
except Exception as e: print("no:", type(e).__name__)'`;

const untilServing = async (box: Pick<Sandbox, "exec">, host: string, port = 80): Promise<string> => {
  for (let left = 40; left > 0; left--) {
    if (await out(box, connect(host, port)) === "connected") return "connected";
    await new Promise((later) => setTimeout(later, 250));
  }
  return `${host}:${port} is not reached`;
};

/** An address of this machine that is not loopback. */
const ownAddress = (): string =>
  Object.values(networkInterfaces()).flat().find((one) => one?.family === "IPv4" && !one.internal)?.address ??
    "127.0.0.1";

/** Another process with groups of its own. */
function hold({ engine, owner, folder }: Bench, count: number) {
  const script = new URL("../support/group_holder.ts", import.meta.url).pathname;
  const scratch = join(folder, owner.run);
  const child = spawn("deno", ["run", "-A", script, engine, owner.run, scratch, String(count)], {
    stdio: "pipe",
  });
  let said = "";
  child.stderr.on("data", (chunk) => said += chunk);
  return {
    child,
    open: new Promise<void>((opened, failed) => {
      child.stdout.on("data", (chunk) => String(chunk).includes("open") && opened());
      child.on("exit", (code) => failed(new Error(`the holder ended with ${code}: ${said}`)));
    }),
    ended: new Promise((ended) => child.on("exit", ended)),
  };
}

const cases: Record<string, (bench: Bench) => Promise<void>> = {
  "members find one another by service name and alias, and everything goes with the group": async (bench) => {
    {
      await using group = await bench.group();
      const db = await bench.service(group, "db", SERVE);
      await using main = await bench.main(group);
      for (const name of ["db", "store"]) assert.equal(await untilServing(main, name), "connected", name);
      await main.exec({
        run: { script: "(python3 -m http.server 81 >/dev/null 2>&1 &)" },
        purpose: "agent",
        deadlineMs: 9_000,
      }, soon());
      assert.equal(await untilServing(db, "main", 81), "connected", "main from a sidecar");
      assert.equal(bench.remains().length, 3);
    }
    assert.deepEqual(bench.remains(), []);
  },
  "without a network members find one another, and neither the outside nor this machine": async (bench) => {
    const server = createServer((socket) => socket.destroy());
    await new Promise<void>((listening) => server.listen(0, "0.0.0.0", listening));
    const { port } = server.address() as { port: number };
    try {
      await using group = await bench.group({ network: "no-network" });
      await bench.service(group, "db", SERVE);
      await using main = await bench.main(group);
      assert.equal(await untilServing(main, "db"), "connected");
      const gateway = await out(main, `python3 -c 'import socket; print(socket.gethostbyname("db"))'`);
      const first = gateway.split(".").slice(0, 3).join(".") + "." + (Number(gateway.split(".")[3]) & ~15 | 1);
      for (const [host, to] of [["203.0.113.80", 80], ["1.1.1.1", 53], [ownAddress(), port], [first, port]] as const) {
        assert.match(await out(main, connect(host, to)), /^no:/, `${host}:${to}`);
      }
      const started = performance.now();
      assert.match(await out(main, connect("deb.debian.org", 80)), /^no: gaierror/);
      assert.ok(performance.now() - started < 5_000, "a name that there is not is told soon");
    } finally {
      server.close();
    }
  },
  "a sidecar runs its own program as its first process, with its user, folder, environment and limits": async (
    bench,
  ) => {
    await using group = await bench.group();
    const secret = `s3cret-${crypto.randomUUID()}`;
    const db = await bench.service(group, "db", [
      "/bin/sh",
      "-c",
      `echo pid $$; pwd; id -u; echo "$TOKEN|$PATH|$TWO"; ulimit -n; df /dev/shm | tail -n 1; hostname; cat /etc/hosts; sleep 600`,
    ], {
      env: { TOKEN: secret, PATH: "/usr/bin:/bin", TWO: "a\nb" },
      workdir: "/usr",
      user: "1234",
      ulimits: { nofile: { soft: 512, hard: 600 } },
      shmBytes: 32 << 20,
      hostname: "box",
      extraHosts: { elsewhere: "192.0.2.77" },
      capDrop: ["NET_BIND_SERVICE"],
      noNewPrivileges: true,
    });
    let said = "";
    for (let left = 20; left > 0 && !said.includes("elsewhere"); left--) {
      await new Promise((later) => setTimeout(later, 250));
      said = await db.tail(10_000);
    }
    for (
      const part of [
        "pid 1\n",
        "/usr\n1234\n",
        `${secret}|/usr/bin:/bin|a\nb\n`,
        "\n512\n",
        "32768",
        "\nbox\n",
        "192.0.2.77\telsewhere",
      ]
    ) {
      assert.ok(said.includes(part), `${JSON.stringify(part)} in ${said}`);
    }
    assert.equal(await out(db, "pwd; id -u"), "/usr\n1234", "a probe runs as the service does");
    assert.equal(await out({ exec: (command, signal) => db.exec({ ...command, user: "root" }, signal) }, "id -u"), "0");
    assert.equal(bench.trace.some((line) => line.includes(secret)), false, "a value of the environment in an argv");
    assert.equal(
      spawnSync("ls", [join(bench.folder, bench.owner.run)], { encoding: "utf8" }).stdout.includes("env-"),
      false,
    );
  },
  "an image without a shell serves as a sidecar, and its programs as probes": async (bench) => {
    const context = join(bench.folder, "context");
    mkdirSync(context);
    writeFileSync(join(context, "index.html"), "served");
    writeFileSync(
      join(context, "Dockerfile"),
      'FROM gym-base:busybox AS from\nFROM scratch\nCOPY --from=from /bin/busybox /server/httpd\nCOPY --from=from /bin/busybox /server/true\nCOPY index.html /www/\nCMD ["/server/httpd"]\n',
    );
    const tag = `hb__${crypto.randomUUID().replaceAll("-", "")}`;
    buildWith(bench.engine, context, tag);
    const image = await bench.provider.prepare(namedNeed(tag), soon(), () => {});
    try {
      await using group = await bench.group();
      const web = await bench.service(group, "web", ["/server/httpd", "-f", "-p", "80", "-h", "/www"], { image });
      await using main = await bench.main(group);
      assert.equal(await untilServing(main, "web"), "connected");
      const probe = (argv: string[]) => web.exec({ run: { argv }, purpose: "server", deadlineMs: 10_000 }, soon());
      assert.equal((await probe(["/server/true"])).exitCode, 0);
      assert.equal((await probe(["/server/none"])).exitCode === 0, false);
      assert.equal(
        (await web.exec({ run: { script: "true" }, purpose: "server", deadlineMs: 10_000 }, soon())).exitCode,
        127,
      );
    } finally {
      spawnSync(bench.engine, ["rmi", "-f", image.reference]);
    }
  },
  "volumes are shared and get the image's files, binds are read-only where asked, scratch and tmpfs are one's own":
    async (bench) => {
      const source = join(bench.folder, "conf");
      mkdirSync(source);
      writeFileSync(join(source, "file"), "from the task");
      chmodSync(source, 0o755);
      await using group = await bench.group({ volumes: ["data"] });
      const db = await bench.service(group, "db", ["sleep", "600"], {
        mounts: [
          { kind: "volume", name: "data", target: "/etc", readOnly: false, noCopy: false },
          { kind: "bind", source, target: "/conf", readOnly: true },
          { kind: "scratch", target: "/scratch" },
          { kind: "tmpfs", target: "/quick", options: "size=1m,mode=1777" },
        ],
      });
      await using main = await bench.main(group, {
        mounts: [
          { kind: "volume", name: "data", target: "/shared", readOnly: true, noCopy: true },
          { kind: "bind", source, target: "/conf", readOnly: false },
        ],
      });
      assert.match(await out(main, "ls /shared"), /passwd/, "copied up at its first target");
      assert.equal(
        await out(db, "echo fresh > /etc/made; cat /conf/file; (echo x > /conf/no) 2>/dev/null || echo :denied"),
        "from the task:denied",
      );
      assert.equal(
        await out(main, "cat /shared/made; (echo x > /shared/no) 2>/dev/null || echo denied"),
        "fresh\ndenied",
      );
      assert.equal(
        await out(db, "echo y > /scratch/a && echo y > /quick/a && grep -c ' /quick tmpfs' /proc/mounts"),
        "1",
      );
      await out(main, "echo back > /conf/back");
      assert.equal(readFileSync(join(source, "back"), "utf8"), "back\n");
    },
  "a service tells when it ended, with what code, and all that it printed": async (bench) => {
    await using group = await bench.group();
    const once = await bench.service(group, "db", ["/bin/sh", "-c", "echo begun; echo wrong >&2; sleep 1; exit 7"]);
    assert.deepEqual(await once.state(soon()), { state: "running" });
    assert.deepEqual(await once.ended(soon()), { exitCode: 7 });
    assert.deepEqual(await once.state(soon()), { state: "ended", exitCode: 7 });
    assert.deepEqual((await once.tail(1000)).split("\n").filter(Boolean).sort(), ["begun", "wrong"]);
    assert.equal((await once.tail(6)).length, 6);
    await assert.rejects(out(once, "true"), { code: "sandbox.lost" });
    const chatty = await bench.service(group, "web", ["python3", "-c", "for i in range(300000): print('line', i)"]);
    await chatty.ended(soon());
    const log = join(bench.folder, "log");
    await chatty.saveLog(log, 2 << 20);
    const text = readFileSync(log, "utf8");
    assert.match(text, /^line 0\n/);
    assert.match(text, /line 299999\n$/);
    assert.ok(text.length < (2 << 20) + 2000, `${text.length} bytes`);
  },
  "a probe past its deadline is dead with all it started": async (bench) => {
    await using group = await bench.group();
    const db = await bench.service(group, "db", ["sleep", "600"]);
    const probe = await db.exec({
      run: { script: "sleep 4817 & setsid sleep 4818 & sleep 4819" },
      purpose: "server",
      deadlineMs: 700,
    }, soon());
    assert.equal(probe.ended, "deadline");
    const left = spawnSync("ps", ["-eo", "stat,args"], { encoding: "utf8" }).stdout.split("\n")
      .filter((line) => /sleep 481[789]/.test(line) && !line.startsWith("Z"));
    assert.deepEqual(left, []);
    assert.deepEqual(await db.state(soon()), { state: "running" });
  },
  "a service may share the network of another": async (bench) => {
    await using group = await bench.group();
    await bench.service(group, "db", ["sleep", "600"]);
    await bench.service(group, "web", SERVE, { networkOf: "db" });
    await using main = await bench.main(group);
    assert.equal(await untilServing(main, "db"), "connected");
    await assert.rejects(bench.service(group, "late", ["true"], { networkOf: "none" }), { code: "sandbox.failed" });
  },
  "F4: what cannot be started says which service and why, and leaves nothing": async (bench) => {
    {
      await using group = await bench.group({ volumes: ["data"] });
      await bench.service(group, "db", ["sleep", "600"]);
      await assert.rejects(bench.service(group, "web", ["/no/such/program"]), {
        code: "sandbox.failed",
        message: /^Service web cannot be started from .*its program \/no\/such\/program cannot be run/,
      });
      await assert.rejects(bench.service(group, "cache", ["true"], { user: "nobody-knows" }), {
        code: "sandbox.failed",
        message: /^Service cache cannot be started from .*nobody-knows/,
      });
      const image = { ...bench.image, handle: { id: "sha256:" + "0".repeat(64) } };
      await assert.rejects(bench.service(group, "gone", ["true"], { image }), {
        code: "image.failed",
        message: /the image is gone since it was prepared/,
      });
      await assert.rejects(
        bench.main(group, { mounts: [{ kind: "bind", source: "/no/such", target: "/x", readOnly: true }] }),
        { code: "sandbox.failed", message: /\/no\/such is not there/ },
      );
      await assert.rejects(bench.main(group, {}, image), { code: /^(sandbox|image)\.failed$/ });
    }
    assert.equal(existsSync("/no"), false, "made by the engine");
    assert.deepEqual(bench.remains(), []);
  },
  "an aborted start leaves nothing": async (bench) => {
    const abort = new AbortController();
    const group = await bench.group();
    setTimeout(() => abort.abort(new HarborError("aborted", "enough")), 30);
    await assert.rejects(
      group.startService({
        ...MEMBER,
        service: "db",
        image: bench.image,
        argv: SERVE,
        env: {},
        limits: {},
        ttlMs: 60_000,
      }, abort.signal),
      { code: "aborted" },
    );
    await group[Symbol.asyncDispose]();
    assert.deepEqual(bench.remains(), []);
  },
  "a main that is kept keeps its group": async (bench) => {
    const group = await bench.group();
    await bench.service(group, "db", SERVE);
    const main = await bench.main(group);
    assert.equal(await untilServing(main, "db"), "connected");
    main.keep();
    await main[Symbol.asyncDispose]();
    await group[Symbol.asyncDispose]();
    assert.equal(bench.remains().length, 3);
    const entered = spawnSync(main.enterArgv[0]!, ["exec", main.id, "/bin/sh", "-c", connect("db", 80)], {
      encoding: "utf8",
    });
    assert.equal(entered.stdout.trim(), "connected");
  },
  "what a dead owner left of a group is found and removed": async (bench) => {
    const dead = { ...bench.owner, pid: spawnSync("true").pid!, start: "1" };
    const group = await bench.group({ owner: dead, volumes: ["data"] });
    await bench.service(group, "db", SERVE, {
      mounts: [{ kind: "volume", name: "data", target: "/data", readOnly: false, noCopy: false }],
    });
    assert.deepEqual((await bench.provider.sweep({ run: "another0" }, soon())).removed, []);
    const left = await bench.provider.list({ run: bench.owner.run }, soon());
    assert.deepEqual(left.map(({ alive }) => alive), [false, false, false]);
    const { removed, failed } = await bench.provider.sweep({ run: bench.owner.run }, soon());
    assert.deepEqual([removed.length, failed], [3, []]);
    assert.deepEqual(bench.remains(), []);
  },
  "an owner that is killed takes its sidecars with it, and what was alive beside it stays": async (bench) => {
    await using group = await bench.group();
    await bench.service(group, "db", SERVE);
    const before = bench.remains().length;
    const holder = hold(bench, 2);
    await holder.open;
    assert.equal(bench.remains().length, before + 6);
    holder.child.kill("SIGKILL");
    for (let left = 60; left > 0 && bench.remains().length > before; left--) {
      await new Promise((later) => setTimeout(later, 500));
    }
    assert.equal(bench.remains().length, before);
  },
  "F1: processes that open groups at the same moment get subnets of their own": async (bench) => {
    const holders = [1, 2, 3].map(() => hold(bench, 4));
    await Promise.all(holders.map(({ open }) => open));
    const names = bench.remains().filter((name) => /^gym-harbor-\w+-held-\d-\w{4}$/.test(name));
    const shown = spawnSync(bench.engine, ["network", "inspect", ...names], { encoding: "utf8" }).stdout;
    assert.equal(new Set(shown.match(/"subnet": "[^"]+"/gi)).size, 12);
    for (const { child } of holders) child.stdin.end();
    await Promise.all(holders.map(({ ended }) => ended));
    assert.deepEqual(bench.remains(), []);
  },
  "the second Ctrl-C takes a group with it": async (bench) => {
    const group = await bench.group({ volumes: ["data"] });
    await bench.service(group, "db", SERVE);
    bench.provider.sweepNow(bench.owner.run);
    assert.deepEqual(bench.remains(), []);
    await group[Symbol.asyncDispose]();
  },
  "F1, F5: twenty groups at once, by two providers, each with a subnet of its own; a pool of four serves forty in a row":
    async (bench) => {
      const providers = [bench.provider, bench.provide()];
      const groups = await Promise.all(Array.from({ length: 20 }, (_, index) =>
        providers[index % 2]!.openGroup!({
          owner: bench.owner,
          episode: `many-${index}`,
          network: index % 3 === 0 ? "no-network" : "public",
          volumes: [],
          members: [{ service: "main", aliases: [] }],
        }, soon())));
      const names = spawnSync(bench.engine, [
        "network",
        "ls",
        "-q",
        "--filter",
        `label=gym-harbor.run=${bench.owner.run}`,
      ], { encoding: "utf8" })
        .stdout.split("\n").filter(Boolean);
      const shown = spawnSync(bench.engine, ["network", "inspect", ...names], { encoding: "utf8" }).stdout;
      const subnets = shown.match(/10\.213\.\d+\.\d+\/\d+/g)!;
      assert.equal(new Set(subnets).size, 20);
      await Promise.all(groups.map((group) => group[Symbol.asyncDispose]()));
      assert.deepEqual(bench.remains(), []);
      const small = bench.provide({ subnet_pool: "10.213.255.192/26" });
      const open = (episode: string) =>
        small.openGroup!({ owner: bench.owner, episode, network: "public", volumes: [], members: [] }, soon());
      for (let turn = 0; turn < 40; turn++) await (await open(`row-${turn}`))[Symbol.asyncDispose]();
      const four = await Promise.all([1, 2, 3, 4].map((turn) => open(`full-${turn}`)));
      await assert.rejects(open("one-too-many"), {
        code: "sandbox.failed",
        message: /No subnet .* is free in 10\.213\.255\.192\/26/,
      });
      for (const group of four) await group[Symbol.asyncDispose]();
    },
};

for (const engine of ["docker", "podman"] as const) {
  for (const [name, check] of Object.entries(cases)) {
    if (!name.includes(process.env.GYM_HARBOR_CASE ?? "")) continue;
    test(`${engine}: ${name}`, { skip: engineSkip(engine) ?? false }, async () => {
      await using one = await bench(engine);
      await check(one);
      assert.deepEqual(
        one.remains().filter(() => !name.includes("kept")),
        [],
        "left behind",
      );
    });
  }
}
