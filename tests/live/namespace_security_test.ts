/**
 * What a sandbox on an image's layers must not reach, tried from inside as its root and by the image itself. Runs as
 * whoever runs the tests.
 */
import assert from "node:assert/strict";
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { spawn, spawnSync } from "node:child_process";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { HarborError } from "../../lib/errors.ts";
import type { ImageConfig } from "../../lib/images/config.ts";
import { systemClock } from "../../lib/runtime/clock.ts";
import { systemRunner } from "../../lib/runtime/runner.ts";
import { selfArgv } from "../../lib/runtime/self.ts";
import { newRunId, thisOwner } from "../../lib/sandbox/owner.ts";
import { removeWhole } from "../../lib/sandbox/scratch.ts";
import type { ExecResult, Sandbox, SandboxSpec } from "../../lib/sandbox/provider.ts";
import type { NamespaceProvider } from "../../providers/namespace.ts";
import { isolationContract } from "../contract/isolation_contract.ts";
import { folderProvider, needOf, oneId, unpackRootfs } from "../support/layers.ts";

const folder = mkdtempSync(join(tmpdir(), "gh-ns-"));
const signal = AbortSignal.timeout(300_000);
const isRoot = process.getuid?.() === 0;
const who = isRoot ? "root" : "a plain user";
const base = unpackRootfs("host", join(folder, "base"));
const planted: Record<string, string> = {};
const providers: NamespaceProvider[] = [];

/** A layer over the base, made by `make`. */
function layer(name: string, make: (root: string) => void): string {
  const root = join(folder, name);
  mkdirSync(root);
  make(root);
  return (planted[name] = root);
}

async function open(
  trees: readonly string[],
  spec: Partial<SandboxSpec> = {},
  config: ImageConfig = {},
  options: Record<string, unknown> = {},
): Promise<Sandbox> {
  const name = `image-${providers.length}`;
  const provider = folderProvider({
    runner: systemRunner(),
    clock: systemClock,
    env: process.env,
    emit: () => {},
    scratch: folder,
    options,
  }, [{ name, trees: [...trees, base], config }]);
  providers.push(provider);
  return await provider.open({
    image: await provider.prepare(needOf(name, { network: spec.network ?? "no-network" }), signal, () => {}),
    owner: thisOwner(newRunId()),
    episode: "0-0",
    role: "agent",
    env: {},
    workdir: undefined,
    user: undefined,
    network: "no-network",
    limits: {},
    ttlMs: 600_000,
    readyTimeoutMs: 60_000,
    ...spec,
  }, signal);
}

let box: Sandbox;
const run = (script: string, where = box, user = "root"): Promise<ExecResult> =>
  where.exec({ run: { script }, purpose: "agent", user, deadlineMs: 60_000 }, signal);
const output = async (script: string, where = box): Promise<string> => (await run(script, where)).stdout.trim();

before(async () => {
  box = await open([]);
});
after(async () => {
  await box?.[Symbol.asyncDispose]();
  for (const one of providers) await one[Symbol.asyncDispose]();
  removeWhole(folder);
});

isolationContract({
  name: `namespace as ${who}`,
  run: (script) => run(script),
  more: [
    ["the folder of programs", "echo x > /.gym-harbor-tools/bash || rm -f /.gym-harbor-tools/bash"],
    ["the first process's program", "echo x > /proc/1/exe"],
    ["programs of the folder through a link", "cd /.gym-harbor-tools && ln -sf /tmp/x setpriv"],
    ["the image's trees on this machine", `ls ${base}`],
  ],
});

test(`namespace as ${who}: whoever climbs out of a changed root folder finds our programs and nothing of this machine`, async () => {
  const script =
    `perl -e 'mkdir "/tmp/x"; chroot "/tmp/x" or exit 9; chdir ".." for 1..99; chroot "."; chdir "/"; opendir D, "/"; print join "\\n", sort readdir D'`;
  const seen = (await output(script)).split("\n");
  assert.ok(seen.includes("box") && seen.includes("setpriv"), `it did not climb: ${seen}`);
  for (const name of ["home", "root", "etc", "var", "tmp", "usr", "work"]) assert.ok(!seen.includes(name), name);
});

test(`namespace as ${who}: a loader's preload file of the image takes no part before rights are given away`, async () => {
  const tree = layer("preload", (root) => {
    mkdirSync(join(root, "etc"));
    writeFileSync(join(root, "etc/ld.so.preload"), "/no/such/library.so\n");
  });
  await using one = await open([tree]);
  // Every program that is started with it complains; those that ran with all rights had no way to see it.
  const started = await run("grep -c . /etc/ld.so.preload; grep CapEff /proc/1/status", one);
  assert.match(started.stderr, /ld\.so\.preload|library\.so/);
  assert.match(started.stdout, /^1\n/);
});

test(`namespace as ${who}: links of the image in the places of mounts lead nowhere`, async () => {
  const victim = join(folder, "victim");
  mkdirSync(victim);
  const tree = layer("links", (root) => {
    for (const name of ["proc", "sys", "dev", ".gym-harbor", ".gym-harbor-tools"]) {
      symlinkSync(victim, join(root, name));
    }
    mkdirSync(join(root, "etc"));
    for (const name of ["hosts", "resolv.conf", "hostname"]) {
      symlinkSync(join(victim, name), join(root, "etc", name));
    }
  });
  await using one = await open([tree]);
  assert.equal(
    await output("[ -d /proc/1 ] && [ -c /dev/null ] && [ ! -L /dev ] && cat /etc/hostname", one),
    "gym-harbor",
  );
  assert.deepEqual(await output(`ls -A ${victim} 2>/dev/null; true`, one), "");
  for (const name of ["hosts", "1", "null", "bash"]) assert.equal(existsSync(join(victim, name)), false, name);
});

test(`namespace as ${who}: an image whose /etc is a link gets no files written through it`, async () => {
  const victim = join(folder, "victim-etc");
  mkdirSync(victim);
  const tree = layer("etc-link", (root) => symlinkSync(victim, join(root, "etc")));
  await using one = await open([tree]);
  assert.equal(await output("echo up", one), "up");
  assert.equal(existsSync(join(victim, "hosts")), false);
});

test(`namespace as ${who}: what a planted account file names is looked up inside alone`, async () => {
  const tree = layer("passwd", (root) => {
    mkdirSync(join(root, "etc"));
    symlinkSync("/etc/shadow", join(root, "etc/passwd"));
  });
  await using one = await open([tree]);
  await assert.rejects(
    run("true", one, "daemon"),
    (error) => error instanceof HarborError && /No user daemon/.test(error.message),
  );
});

test(`namespace as ${who}: what is written inside stays inside, and the image stays as it was`, async () => {
  const mark = `gh-${newRunId()}`;
  const paths = ["/etc", "/usr/bin", "/opt", "/tmp", "/root", "/"];
  const script = paths.map((path) => `echo x > ${path}/${mark} || echo ${path}`).join("\n") +
    "\nrm -rf /usr/bin/env /opt; [ ! -e /usr/bin/env ] && ln -s / /usr/bin/env && chmod 0 /etc/passwd";
  const result = await run(script);
  assert.deepEqual([result.stdout, result.exitCode], ["", 0], result.stderr);
  for (const path of paths) {
    assert.equal(existsSync(join(path, mark)), false, path);
    assert.equal(existsSync(join(base, path, mark)), false, path);
  }
  assert.ok(lstatSync(join(base, "usr/bin/env")).isFile() || lstatSync(join(base, "usr/bin/env")).isSymbolicLink());
  assert.notEqual(lstatSync(join(base, "etc/passwd")).mode & 0o777, 0);
  assert.equal(await output("echo on"), "on", "an account file that nobody may read is no fault");
});

test(`namespace as ${who}: a set-user-id program of the image works inside and gives no more than inside`, {
  skip: oneId() && "needs more than one id",
}, async () => {
  const tree = layer("setuid", (root) => {
    mkdirSync(join(root, "opt"));
    writeFileSync(join(root, "opt/id"), readFileSync(join(base, "usr/bin/id")));
    chmodSync(join(root, "opt/id"), 0o4755);
  });
  await using one = await open([tree]);
  const result = await run("/opt/id -u; grep CapBnd /proc/self/status", one, "1234");
  assert.match(result.stdout, /^0\n/);
  const bounding = BigInt(`0x${/CapBnd:\s*([0-9a-f]+)/.exec(result.stdout)![1]}`);
  assert.equal(bounding & (1n << 21n), 0n, "CAP_SYS_ADMIN");
});

test("namespace: environment, working directory and user are the image's, names by its own account files", {
  skip: oneId() && "needs more than one id",
}, async () => {
  const tree = layer("settings", (root) => {
    mkdirSync(join(root, "etc"));
    writeFileSync(join(root, "etc/passwd"), "root:x:0:0::/root:/bin/sh\nworker:x:4242:77:w:/srv/worker:/bin/sh\n");
    writeFileSync(join(root, "etc/group"), "root:x:0:\nstaff:x:50:worker\nmine:x:77:\n");
  });
  const config = {
    Env: ["GREETING=hello", "LD_LIBRARY_PATH=/opt/lib", "PATH=/opt/bin:/usr/bin:/bin"],
    WorkingDir: "/w",
    User: "worker",
  };
  await using one = await open([tree], {}, config);
  assert.equal(one.workdir, "/w");
  const asImage = async (user?: string) =>
    (await one.exec({
      run: { script: 'id -u; id -g; id -G; echo "$HOME $GREETING $LD_LIBRARY_PATH $PATH"; pwd; touch x && echo mine' },
      purpose: "agent",
      deadlineMs: 10_000,
      ...(user !== undefined && { user }),
    }, signal)).stdout.split("\n");
  assert.deepEqual(await asImage(), [
    "4242",
    "77",
    "77 50",
    "/srv/worker hello /opt/lib /opt/bin:/usr/bin:/bin",
    "/w",
    "mine",
    "",
  ]);
  assert.deepEqual((await asImage("worker:staff")).slice(0, 3), ["4242", "50", "50"]);
  assert.deepEqual((await asImage("1000:2000")).slice(0, 4), [
    "1000",
    "2000",
    "2000",
    "/ hello /opt/lib /opt/bin:/usr/bin:/bin",
  ]);
});

test("namespace: 127 layers, the topmost wins", async () => {
  const trees = Array.from({ length: 126 }, (_, n) =>
    layer(`n${n}`, (root) => {
      mkdirSync(join(root, "opt"));
      writeFileSync(join(root, "opt/top"), String(n));
      writeFileSync(join(root, `opt/${n}`), "");
    }));
  await using one = await open(trees);
  assert.equal(await output("cat /opt/top; ls /opt | wc -l", one), "0127");
});

test("namespace: options are checked by name", async () => {
  const usage = (error: unknown) => error instanceof HarborError && error.code === "usage";
  await assert.rejects(open([], {}, {}, { network: "bridge" }), usage);
  await assert.rejects(open([], {}, {}, { netwrok: "host" }), usage);
  await assert.rejects(open([], {}, {}, { storage: "tape" }), usage);
});

test("namespace: works with storage=memory and notes it", async () => {
  await using one = await open([], { workdir: "/app" }, {}, { storage: "memory" });
  assert.equal(
    await output("echo 1 > /app/f; cat /app/f /etc/hostname; stat -f -c %T /app", one),
    "1\ngym-harbor\noverlayfs",
  );
  assert.match(one.notes.join("\n"), /^files: .*memory/m);
});

test("namespace: network=host shares this machine's network and says so", async () => {
  await using one = await open([], { network: "public" }, {}, { network: "host" });
  assert.equal(one.network, "host");
  assert.match(one.notes.join("\n"), /shares this machine's network \(sandbox\.namespace\.network=host\)/);
  assert.equal(
    await output("wc -l < /proc/net/dev", one),
    String(readFileSync("/proc/net/dev", "utf8").split("\n").length - 1),
  );
});

test(
  `namespace as ${who}: apt fetches as root where root is the only id`,
  { skip: !oneId() && "there are more ids" },
  async () => {
    assert.equal(await output('cat "$APT_CONFIG"'), 'APT::Sandbox::User "root";');
  },
);

test(`namespace as ${who}: kill -9 of the owner leaves no process of a sandbox, a relay or a group`, async () => {
  const script = fileURLToPath(new URL("../support/namespace_owner.ts", import.meta.url));
  const [program, ...args] = selfArgv([]);
  const main = args.findIndex((word) => word.endsWith("main.ts"));
  const argv = main < 0 ? args : [...args.slice(0, main), script];
  const scratch = join(folder, "owner");
  mkdirSync(scratch);
  const owner = spawn(program!, [...argv, scratch, base], { stdio: ["ignore", "pipe", "inherit"] });
  const said = await new Promise<string>((resolve) => owner.stdout.once("data", (data) => resolve(String(data))));
  const pids = said.trim().split(" ").map(Number);
  assert.equal(pids.length, 5, said); // two sandboxes, a group's bridge, its service, its main
  owner.kill("SIGKILL");
  const isGone = (pid: number) =>
    !existsSync(`/proc/${pid}`) || /^State:\s+[ZX]/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  const relays = () =>
    spawnSync("ps", ["-eo", "args", "-ww"], { encoding: "utf8" }).stdout.split("\n")
      .filter((line) => line.includes(" relay ") && line.includes(scratch));
  for (let tries = 0; tries < 100 && !(pids.every(isGone) && relays().length === 0); tries++) {
    await systemClock.sleep(50);
  }
  assert.deepEqual([pids.filter((pid) => !isGone(pid)), relays()], [[], []]);
  assert.ok(!readFileSync("/proc/self/mountinfo", "utf8").includes(scratch));
});
