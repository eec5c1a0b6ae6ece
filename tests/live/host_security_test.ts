/**
 * What a sandbox on this machine's root must not reach, tried from inside as its root; and what the kernel keeps of it
 * when its owner is killed. Runs as whoever runs the tests.
 */
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { HarborError } from "../../lib/errors.ts";
import { systemClock } from "../../lib/runtime/clock.ts";
import { systemRunner } from "../../lib/runtime/runner.ts";
import { selfArgv } from "../../lib/runtime/self.ts";
import { newRunId, thisOwner } from "../../lib/sandbox/owner.ts";
import type { ExecResult, ImageNeed, Network, Sandbox, SandboxSpec } from "../../lib/sandbox/provider.ts";
import { HostProvider } from "../../providers/host.ts";
import { isolationContract } from "../contract/isolation_contract.ts";

const folder = mkdtempSync(join(tmpdir(), "gh-host-"));
const signal = AbortSignal.timeout(300_000);
const isRoot = process.getuid?.() === 0;
const providers: HostProvider[] = [];
let provider: HostProvider;
let box: Sandbox;

const makeProvider = (options: Record<string, unknown> = {}): HostProvider => {
  const made = new HostProvider({
    runner: systemRunner(),
    clock: systemClock,
    env: process.env,
    emit: () => {},
    scratch: folder,
    options,
  });
  providers.push(made);
  return made;
};
const need = (more: Partial<ImageNeed> = {}): ImageNeed => ({
  taskId: "t",
  source: { kind: "none" },
  network: "no-network",
  limits: {},
  users: [],
  ...more,
});
async function open(from: HostProvider, spec: Partial<SandboxSpec> = {}, needed = need()): Promise<Sandbox> {
  return await from.open({
    image: await from.prepare(needed, signal, () => {}),
    owner: thisOwner(newRunId()),
    episode: "0-0",
    role: "agent",
    env: {},
    workdir: undefined,
    user: undefined,
    network: needed.network,
    limits: {},
    ttlMs: 600_000,
    readyTimeoutMs: 60_000,
    ...spec,
  }, signal);
}
const run = (script: string, where = box): Promise<ExecResult> =>
  where.exec({ run: { script }, purpose: "agent", user: "root", deadlineMs: 60_000 }, signal);

before(async () => {
  provider = makeProvider();
  box = await open(provider);
});
after(async () => {
  await box?.[Symbol.asyncDispose]();
  for (const one of providers) await one[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true, force: true });
});

isolationContract({
  name: `host as ${isRoot ? "root" : "a plain user"}`,
  run: (script) => run(script),
  more: [
    ["ssh keys of the machine", "ls /etc/ssh/*key*"],
    ["sudo rules of the machine", "cat /etc/sudoers.d/* 2>/dev/null | grep ."],
    ["password hashes", "cut -d: -f2 /etc/shadow | grep -v '^[*!]*$'"],
    ["engine storage", "ls /var/lib/docker /var/lib/containers 2>/dev/null | grep ."],
    ["engine sockets", "find /run /var/run -type s 2>/dev/null | grep ."],
    ["the boot folder", "ls -A /boot | grep ."],
    ["homes", "ls -A /root /home | grep -v '^/' | grep ."],
  ],
});

test("host: whoever enters a kept sandbox hands no more rights to what lies in it, and cannot be watched", {
  skip: isRoot ? false : "a plain user has no more rights to hand over",
}, async () => {
  await using kept = await open(provider);
  const [program, ...args] = kept.enterArgv;
  const entered = (script: string) => spawnSync(program!, [...args, "-c", script], { encoding: "utf8" }).stdout;
  const capabilities = (text: string) => BigInt(`0x${/CapEff:\s*([0-9a-f]+)/.exec(text)?.[1] ?? "0"}`);
  const held = capabilities((await run("grep CapEff /proc/self/status", kept)).stdout);
  const more = capabilities(entered("grep CapEff /proc/self/status"));
  assert.equal(more, held | (1n << 35n), "wake_alarm alone"); // capability.h: CAP_WAKE_ALARM is 35
  assert.equal(entered("mount -t tmpfs none /mnt && echo mounted"), "");
  assert.equal(entered("cd /..; ls -A"), (await run("ls -A /", kept)).stdout, "the sandbox's own root folder");
  const watched = "sleep 5 & echo $!; wait";
  const shell = spawn(program!, [...args, "-c", watched]);
  try {
    const pid = await new Promise<string>((resolve) =>
      shell.stdout.once("data", (text) => resolve(String(text).trim()))
    );
    assert.notEqual((await run(`ls /proc/${pid}/root/`, kept)).exitCode, 0, "its root folder");
  } finally {
    shell.kill("SIGKILL");
  }
});

test("host: what is written inside stays inside", async () => {
  const mark = `gh-${newRunId()}`;
  const paths = ["/etc", "/usr", "/usr/bin", "/usr/local/bin", "/opt", "/var/lib", "/var/tmp", "/tmp", "/root", "/"];
  const script = paths.map((path) => `echo x > ${path}/${mark} || echo ${path}`).join("\n") +
    "\necho '127.0.0.9 changed' >> /etc/hosts; rm -f /usr/bin/env; [ ! -e /usr/bin/env ]";
  const result = await run(script);
  assert.deepEqual([result.stdout, result.exitCode], ["", 0], result.stderr);
  for (const path of paths) assert.equal(existsSync(join(path, mark)), false, path);
  assert.ok(existsSync("/usr/bin/env") && !readFileSync("/etc/hosts", "utf8").includes("127.0.0.9 changed"));
  await using other = await open(provider);
  assert.equal((await run("ls /usr/bin/env; grep -c changed /etc/hosts", other)).stdout, "/usr/bin/env\n0\n");
});

test("A16: folders that are named are not visible, wherever they lie", {
  skip: isRoot ? false : "needs root to make a folder in /opt",
}, async () => {
  const hidden = mkdtempSync("/opt/gh-hidden-");
  try {
    mkdirSync(join(hidden, "tests"));
    writeFileSync(join(hidden, "tests/answer"), "42");
    await using blind = await open(provider, { hide: [hidden] });
    assert.notEqual((await run(`ls ${hidden}`, blind)).exitCode, 0);
    await using seeing = await open(provider);
    assert.equal((await run(`cat ${hidden}/tests/answer`, seeing)).stdout, "42");
    // A task that lies straight in a folder of the system hides itself, not the system.
    writeFileSync(join(hidden, "task.toml"), "");
    await using beside = await open(provider, { hide: ["/opt", "/usr/share"] });
    assert.notEqual((await run(`ls ${hidden}`, beside)).exitCode, 0);
    assert.equal((await run("ls -d /usr/share/zoneinfo /opt", beside)).exitCode, 0);
  } finally {
    rmSync(hidden, { recursive: true });
  }
});

test("host: su works for the sandbox's root, and programs of other users get no more rights", {
  skip: isRoot ? false : "needs more than one id",
}, async () => {
  await using fresh = await open(provider, { setup: "useradd -m agent" });
  const result = await run("su agent -c 'id -un; cat /etc/shadow' 2>/dev/null", fresh);
  assert.equal(result.stdout, "agent\n");
});

test("B10: host processes are out of sight and out of reach", async () => {
  const victim = spawn("sleep", ["4731"], { stdio: "ignore" });
  try {
    await run("pkill -9 sleep; kill -9 -1; true");
    const seen = await run("ps -e -o args | grep -c '[s]leep 4731'");
    assert.equal(seen.stdout.trim(), "0");
    assert.equal(victim.exitCode, null);
    assert.equal(spawnSync("kill", ["-0", String(victim.pid)]).status, 0);
  } finally {
    victim.kill("SIGKILL");
  }
});

test("D6: the way out of a public sandbox refuses this machine's own services", async () => {
  const server = createServer((socket) => socket.end("HTTP/1.0 200 OK\r\n\r\nsecret"));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", () => resolve()));
  const port = (server.address() as { port: number }).port;
  try {
    await using open_ = await open(provider, {}, need({ network: "public" }));
    assert.equal(open_.network, "public");
    const tries = ["127.0.0.1", "localhost", "[::1]", "0.0.0.0", "127.1", "2130706433", "[::ffff:127.0.0.1]"];
    for (const name of tries) {
      const asked = await run(
        `curl -sS -m 10 --noproxy '' -x "$http_proxy" http://${name}:${port}/; curl -sS -m 10 --noproxy '' -p -x "$http_proxy" http://${name}:${port}/`,
        open_,
      );
      assert.ok(!asked.stdout.includes("secret"), name);
    }
    assert.match(
      (await run("curl -sS -m 10 --noproxy '' -x $http_proxy http://127.0.0.1:1/", open_)).stdout,
      /loopback/,
    );
    assert.notEqual(
      (await run(`curl -sS -m 5 --noproxy '*' http://127.0.0.1:${port}/`, open_)).exitCode,
      0,
      "own loopback",
    );
  } finally {
    server.close();
  }
});

test("host: networks are lent again only when nothing of the last sandbox is left", async () => {
  const names: string[] = [];
  for (let round = 0; round < 3; round++) {
    await using one = await open(provider, {}, need({ network: "public" }));
    names.push((await run("readlink /proc/self/ns/net; ss -ltn 2>/dev/null | grep -c :8123", one)).stdout.trim());
    await run(
      "(perl -MIO::Socket::INET -e 'IO::Socket::INET->new(Listen=>1,LocalAddr=>q(127.0.0.1:8123)) or die; sleep 99' &) >/dev/null 2>&1; sleep 0.3",
      one,
    );
  }
  assert.deepEqual(names.map((line) => line.split("\n")[1]), ["0", "0", "0"]);
});

test("host: network=host shares this machine's network and says so", async () => {
  const shared = makeProvider({ network: "host" });
  await using one = await open(shared, {}, need({ network: "public" }));
  assert.equal(one.network, "host");
  assert.match(one.notes.join("\n"), /shares this machine's network/);
  assert.equal(
    (await run("readlink /proc/self/ns/net", one)).stdout.trim(),
    (await run("readlink /proc/self/ns/net", one)).stdout.trim(),
  );
  await using none = await open(shared);
  assert.equal(none.network satisfies Network, "no-network");
});

test("host: options are checked by name", () => {
  const usage = (error: unknown) => error instanceof HarborError && error.code === "usage";
  assert.throws(() => makeProvider({ network: "bridge" }), usage);
  assert.throws(() => makeProvider({ netwrok: "host" }), usage);
  assert.throws(() => makeProvider({ run: "never" }), usage);
});

for (const storage of ["memory", "read-only"]) {
  test(`host: works with storage=${storage} and notes it`, async () => {
    await using one = await open(makeProvider({ storage }), { workdir: "/app" });
    const result = await run(
      "echo 1 > /app/f && cat /app/f && ls /etc/shadow >/dev/null; echo x > /tmp/y && cat /tmp/y",
      one,
    );
    assert.match(result.stdout, /1\n[^]*x\n/);
    assert.match(one.notes.join("\n"), /^files: /m);
    assert.notEqual((await run("cut -d: -f2 /etc/shadow | grep -v '^[*!]*$'", one)).exitCode, 0);
  });
}

test("a Dockerfile is applied with this machine as its base, once for its tasks", async () => {
  const context = join(folder, "context");
  mkdirSync(join(context, "app"), { recursive: true });
  writeFileSync(join(context, "app/data"), "data");
  writeFileSync(
    join(context, "Dockerfile"),
    `FROM ubuntu:24.04
RUN apt-get update && apt-get install -y nothing
ENV GREETING="hello world"
WORKDIR /srv/app
COPY app/ ./
COPY --chmod=0700 app/data /usr/local/bin/tool
RUN echo "$GREETING" > greeting && date +%N > /etc/stamp && mkdir -p /var/lib/thing && chmod 711 /srv/app
RUN <<EOF
echo heredoc >> greeting
EOF
`,
  );
  const needed = need({
    source: {
      kind: "dockerfile",
      context,
      dockerfile: join(context, "Dockerfile"),
      tag: "hb__x",
      buildTimeoutMs: 60_000,
    },
  });
  const stamps: string[] = [];
  for (let round = 0; round < 2; round++) {
    await using one = await open(provider, {}, needed);
    assert.equal(one.workdir, "/srv/app");
    const result = await run(
      'cat greeting data; stat -c %a /usr/local/bin/tool /srv/app; ls -d /var/lib/thing; echo "$GREETING"; cat /etc/stamp; rm greeting /etc/stamp',
      one,
    );
    const lines = result.stdout.split("\n");
    stamps.push(lines[6]!);
    assert.deepEqual(
      lines.slice(0, 6),
      ["hello world", "heredoc", "data700", "711", "/var/lib/thing", "hello world"],
      result.stderr,
    );
    assert.match(one.notes.join("\n"), /line 2 installs, left out/);
  }
  assert.equal(stamps[0], stamps[1], "the second sandbox stands on the same layer");
});

test("a RUN line that fails is the image's fault, with what it printed", async () => {
  const context = join(folder, "broken");
  mkdirSync(context);
  writeFileSync(join(context, "Dockerfile"), "FROM x\nRUN echo why >&2; exit 3\n");
  const source = {
    kind: "dockerfile",
    context,
    dockerfile: join(context, "Dockerfile"),
    tag: "hb__y",
    buildTimeoutMs: 60_000,
  } as const;
  await assert.rejects(
    provider.prepare(need({ source }), signal, () => {}),
    (error) =>
      error instanceof HarborError && error.code === "image.failed" &&
      /line 2[^]*exit code 3[^]*why/.test(error.message),
  );
});

test("kill -9 of the owner leaves no process and no mount", async () => {
  const script = fileURLToPath(new URL("../support/host_owner.ts", import.meta.url));
  const [program, ...args] = selfArgv([]);
  const main = args.findIndex((word) => word.endsWith("main.ts"));
  const argv = main < 0 ? args : [...args.slice(0, main), script];
  const scratch = join(folder, "owner");
  mkdirSync(scratch);
  const owner = spawn(program!, [...argv, scratch], { stdio: ["ignore", "pipe", "inherit"] });
  const said = await new Promise<string>((resolve) => owner.stdout.once("data", (data) => resolve(String(data))));
  const inits = said.trim().split(" ").map(Number);
  assert.equal(inits.length, 2);
  owner.kill("SIGKILL");
  const isGone = (pid: number) =>
    !existsSync(`/proc/${pid}`) || /^State:\s+[ZX]/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  const relayLines = () =>
    spawnSync("ps", ["-eo", "pid,ppid,stat,args", "-ww"]).stdout.toString().split("\n")
      .filter((line) => line.includes(" relay ") && line.includes(join(scratch, "host-"))).join("\n");
  const relays = () => relayLines() !== "";
  for (let tries = 0; tries < 100 && !(inits.every(isGone) && !relays()); tries++) await systemClock.sleep(50);
  assert.ok(inits.every(isGone), "its sandboxes run on");
  assert.ok(!relays(), `a relay runs on:\n${relayLines()}`);
  assert.ok(!readFileSync("/proc/self/mountinfo", "utf8").includes(scratch));
});
