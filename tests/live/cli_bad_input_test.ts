/**
 * What goes wrong around a run rather than in a task: no engine, an engine that dies, a full disk, a folder that cannot be
 * written, images that lack the least. Every message names what was found, what was wanted and the next step; no fault
 * of the machine becomes a reward; no stack trace.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { connect, createServer, type Server, type Socket } from "node:net";
import process from "node:process";
import { test } from "node:test";
import { binary, type CliResult, looksLikeStackTrace, runCli, startCli } from "../support/cli.ts";
import { missing, needing, needsRoot, sandboxTest } from "../support/kit.ts";
import { IMAGE, type Row, runFiles, TempFolder, validate } from "../support/tasks.ts";

const HOST = ["--sandbox", "host"];

/** An error for a person: its code, what it says and a hint; no stack. */
function refuses(result: CliResult, exit: number, code: string, ...says: RegExp[]): void {
  const told = `exit ${result.code}\n${result.stdout}\n${result.stderr}`;
  assert.equal(result.code, exit, told);
  assert.match(result.stderr, new RegExp(`^error\\[${code.replace(".", "\\.")}\\]: `, "m"), told);
  assert.match(result.stderr, /^hint: /m, told);
  for (const one of says) assert.match(result.stderr, one, told);
  assert.equal(looksLikeStackTrace(result.stderr), false, told);
}

const notScored = (rows: readonly Row[]): boolean => rows.every((row) => row.mask_sample === true);

/** A PATH on which only the named programs are found. */
function pathOf(folder: TempFolder, programs: readonly string[]): string {
  const bin = folder.join("bin");
  mkdirSync(bin, { recursive: true });
  for (const name of programs) {
    const found = spawnSync("sh", ["-c", `command -v ${name}`], { encoding: "utf8" }).stdout.trim();
    if (found !== "") symlinkSync(found, `${bin}/${name}`);
  }
  return bin;
}

test("engine missing: docker that is not installed is named, with what to do", async () => {
  using folder = new TempFolder("noengine");
  const task = folder.task("t", {});
  const env = { PATH: pathOf(folder, ["sh"]) };
  for (const engine of ["docker", "podman"]) {
    refuses(
      await runCli(["validate", task, "--sandbox", engine], { env, cwd: folder.path }),
      3,
      "engine.missing",
      new RegExp(engine),
    );
  }
});

needing(missing("host"), "engine missing: where namespaces are forbidden too, auto names the ways on", async () => {
  using folder = new TempFolder("noauto");
  const task = folder.task("t", {});
  const forbid = "for kind in user mnt; do echo 0 > /proc/sys/user/max_${kind}_namespaces; done";
  const wrap = ["unshare", "--user", "--map-root-user", "/bin/sh", "-c", `${forbid}; exec "$@"`, "sh"];
  const result = await runCli(["validate", task], {
    env: { PATH: pathOf(folder, ["sh", "unshare"]) },
    cwd: folder.path,
    wrap,
  });
  refuses(result, 3, "engine.missing", /docker/i, /podman/i, /namespace/i, /--sandbox host/);
});

needing(
  missing("docker")?.includes("not installed") ? missing("docker") : null,
  "daemon down: docker whose daemon does not answer is told from docker that is not there",
  async () => {
    using folder = new TempFolder("down");
    const task = folder.task("t", {});
    const env = { DOCKER_HOST: `unix://${folder.join("nobody.sock")}` };
    refuses(
      await runCli(["validate", task, "--sandbox", "docker"], { env, cwd: folder.path }),
      3,
      "engine.missing",
      /nobody\.sock|daemon/,
    );
  },
);

test("a sandbox that is not known or not offered", async () => {
  using folder = new TempFolder("unknown");
  const task = folder.task("t", {});
  refuses(await runCli(["validate", task, "--sandbox", "dokcer"], { cwd: folder.path }), 2, "usage", /docker/);
  refuses(await runCli(["validate", task, "--sandbox", "local"], { cwd: folder.path }), 2, "not-built", /host/);
});

test("the command line: a command without its arguments prints its help and exits 2", async () => {
  for (const argv of [[], ["validate"], ["dataset"], ["sandbox"]]) {
    const result = await runCli(argv);
    assert.equal(result.code, 2, `${argv.join(" ")}: ${result.stderr}`);
    assert.match(`${result.stdout}${result.stderr}`, /usage: gym-harbor/i, argv.join(" "));
  }
});

test("the command line: what is misspelt is named with what was meant, and exits 2", async () => {
  using folder = new TempFolder("usage");
  const task = folder.task("t", {});
  const lines: [string[], RegExp][] = [
    [["valdiate", task], /validate/],
    [["dataset", "valdate", task], /validate/],
    [["validate", task, "--sandbx", "host"], /--sandbox/],
    [["validate", task, ...HOST, "++sandbix.host.network=host"], /sandbox/],
    [["validate", task, ...HOST, "nokey=1"], /nokey/],
    [["validate", task, ...HOST, "--concurrency", "0"], /concurrency/],
    [["validate", task, ...HOST, "--num-repeats", "x"], /num-repeats/],
    [["run", task, ...HOST, "--agent", "oracel"], /oracle/],
    [["images", "pull", "Not A Reference"], /path component/],
    [["eval", "plan", task], /not in this version/],
  ];
  for (const [argv, says] of lines) {
    const result = await runCli(argv, { cwd: folder.path });
    const told = `${argv.join(" ")}: exit ${result.code}\n${result.stdout}\n${result.stderr}`;
    assert.equal(result.code, 2, told);
    assert.match(result.stderr, says, told);
    assert.equal(looksLikeStackTrace(result.stderr), false, told);
  }
});

sandboxTest("host", "a results folder that cannot be written is named before anything runs", async () => {
  using folder = new TempFolder("unwritable");
  const task = folder.task("t", {});
  writeFileSync(folder.join("file"), "");
  for (const output of [folder.join("file", "out", "r.jsonl"), "/proc/gym-harbor/r.jsonl"]) {
    const result = await runCli(["validate", task, ...HOST, "--output", output]);
    refuses(result, 3, "store.unwritable", /--output/);
    assert.doesNotMatch(result.stdout, /\toracle /, "nothing ran");
  }
});

needing(needsRoot(), "a results folder that belongs to another user is named", async () => {
  using folder = new TempFolder("foreign");
  const task = folder.task("t", {});
  mkdirSync(folder.join("out"));
  chmodSync(folder.join("out"), 0o755);
  const result = await runCli(["validate", task, ...HOST, "--output", folder.join("out", "r.jsonl")], {
    wrap: ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"],
  });
  refuses(result, 3, "store.unwritable", /--output/, /out/);
});

needing(
  needsRoot(),
  "a disk that fills while rows are written keeps whole rows, says so, and --resume goes on",
  async () => {
    using folder = new TempFolder("full");
    const names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for (const name of names) folder.task(`data/${name}`, { solve: "head -c 3000 /dev/zero | tr '\\0' x" });
    const disk = folder.join("disk");
    mkdirSync(disk);
    const mount = (options: string): void =>
      assert.equal(spawnSync("mount", ["-t", "tmpfs", "-o", options, "tmpfs", disk]).status, 0);
    mount("size=256k");
    try {
      const output = `${disk}/rollouts.jsonl`;
      const argv = [...HOST, "--concurrency", "1"];
      const filler = spawnSync("sh", ["-c", `head -c 150000 /dev/zero > ${disk}/filler`]);
      assert.equal(filler.status, 0);
      const first = await validate(folder.join("data"), output, argv); // throws where a row is cut
      assert.notEqual(first.code, 0, first.stderr);
      assert.equal(first.signal, null);
      assert.match(first.stderr, /no space|ENOSPC|disk/i, first.stderr);
      assert.equal(looksLikeStackTrace(first.stderr), false, first.stderr);
      assert.ok(first.rows.length < names.length, "the disk was full before the end");
      assert.ok(first.rows.every((row) => row.mask_sample || row.reward === 1), "no fault of ours became a 0");
      assert.equal(spawnSync("mount", ["-o", "remount,size=8m", disk]).status, 0);
      const second = await validate(folder.join("data"), output, [...argv, "--resume"]);
      const scoredIds = second.rows.map((row) => row._ng_task_id.task_id).sort();
      assert.deepEqual(scoredIds, names, second.stderr);
    } finally {
      spawnSync("umount", ["-l", disk]);
    }
  },
);

sandboxTest("host", "two runs into one folder: the second is refused and names the first", async () => {
  using folder = new TempFolder("locked");
  const task = folder.task("t", { solve: "sleep 3" });
  const output = folder.join("out", "r.jsonl");
  const first = startCli(["validate", task, ...HOST, "--output", output]);
  await new Promise((resolve) => setTimeout(resolve, 1200));
  const second = await runCli(["validate", task, ...HOST, "--output", output]);
  assert.notEqual(second.code, 0);
  assert.match(second.stderr, /^error\[store\.locked\]: /m, second.stderr);
  assert.match(second.stderr, new RegExp(String(first.pid)), second.stderr);
  const ended = await first.wait();
  assert.equal(ended.code, 0, ended.stderr);
  assert.equal(runFiles(output, ended).rows.length, 1);
});

sandboxTest("docker", "a daemon that dies in the middle ends the run, and none of its tasks is scored", async () => {
  using folder = new TempFolder("dies");
  for (const name of ["a", "b", "c"]) folder.task(`data/${name}`, { solve: "sleep 30" });
  await using proxy = await EngineProxy.open(folder.join("proxy.sock"));
  const output = folder.join("out", "rollouts.jsonl");
  const started = startCli(
    ["validate", folder.join("data"), "--sandbox", "docker", "--output", output, "--concurrency", "2"],
    { env: { DOCKER_HOST: `unix://${proxy.path}` }, timeoutMs: 120_000 },
  );
  try {
    await new Promise((resolve) => setTimeout(resolve, 6000));
    proxy.die();
    const result = await started.wait();
    const run = runFiles(output, result);
    assert.equal(result.signal, null, "it ended by itself");
    assert.notEqual(result.code, 0, result.stderr);
    assert.ok(result.ms < 90_000, `took ${result.ms} ms`);
    assert.ok(notScored(run.rows), JSON.stringify(run.rows));
    assert.equal(run.rows.length + run.failures.length, 3, result.stderr);
    assert.equal(looksLikeStackTrace(result.stderr), false, result.stderr);
    assert.match(result.stderr, /docker|daemon/i);
  } finally {
    removeContainersOf(started.pid);
  }
});

for (const engine of ["docker", "podman"] as const) {
  sandboxTest(engine, "an image without a shell is named, and is no reward of 0", async () => {
    using folder = new TempFolder("noshell");
    const task = folder.task("bare", {
      image: null,
      files: { "environment/Dockerfile": "FROM scratch\nCOPY note /note\n", "environment/note": "x" },
    });
    const run = await validate(task, folder.join("out", "r.jsonl"), ["--sandbox", engine]);
    assert.equal(run.code, 1, run.stderr);
    assert.ok(notScored(run.rows), JSON.stringify(run.rows));
    assert.match(
      run.failures[0]?._ng_failure_message ?? run.rows[0]?.failure_reason ?? run.stderr,
      /\bsh\b|shell/,
      run.stderr,
    );
    assert.equal(looksLikeStackTrace(run.stderr), false, run.stderr);
  });

  sandboxTest(engine, "a build that fails names its last lines and the task", async () => {
    using folder = new TempFolder("nobuild");
    const task = folder.task("unbuildable", {
      image: null,
      files: { "environment/Dockerfile": `FROM ${IMAGE}\nRUN echo the-real-cause >&2 && exit 9\n` },
    });
    const run = await validate(task, folder.join("out", "r.jsonl"), ["--sandbox", engine]);
    assert.equal(run.code, 1, run.stderr);
    assert.deepEqual(run.rows, []);
    assert.match(`${run.failures[0]?._ng_failure_message}${run.stderr}`, /the-real-cause/, run.stderr);
    assert.match(run.stdout, /^unbuildable\tfailed: /m);
  });
}

sandboxTest("host", "an instruction that the host sandbox cannot honour refuses its task by name", async () => {
  using folder = new TempFolder("hostrefuses");
  const dockerfiles: Record<string, [string, RegExp]> = {
    staged: [`FROM ${IMAGE} AS one\nRUN true\nFROM ${IMAGE}\nCOPY --from=one /etc/hostname /x\n`, /FROM|stage/i],
    fetched: [`FROM ${IMAGE}\nADD https://example.org/x.tar /x\n`, /ADD/],
  };
  for (const [name, [text]] of Object.entries(dockerfiles)) {
    folder.task(`data/${name}`, { image: null, files: { "environment/Dockerfile": text } });
  }
  const run = await validate(folder.join("data"), folder.join("out", "r.jsonl"), HOST);
  assert.equal(run.code, 1, run.stderr);
  assert.deepEqual(run.rows, []);
  for (const [name, [, says]] of Object.entries(dockerfiles)) {
    const reason = run.skipped[name] ??
      run.failures.find((row) => row._ng_task_id.task_id === name)?._ng_failure_message ?? "";
    assert.match(reason, says, `${name}: ${reason}\n${run.stderr}`);
  }
});

sandboxTest("host", "a reader of stdout that goes away is no fault", () => {
  using folder = new TempFolder("pipe");
  const task = folder.task("t", {});
  const output = folder.join("out", "r.jsonl");
  const command = `"$0" validate ${task} --sandbox host --output ${output} | true`;
  const result = spawnSync("bash", ["-c", command, binary()], { encoding: "utf8" });
  assert.equal(looksLikeStackTrace(result.stderr), false, result.stderr);
  assert.doesNotMatch(result.stderr, /EPIPE/);
});

/** Stands between docker's client and its daemon, and can die as a daemon does. */
class EngineProxy implements AsyncDisposable {
  readonly #sockets = new Set<Socket>();
  #server: Server | undefined;

  private constructor(readonly path: string) {}

  static open(path: string): Promise<EngineProxy> {
    const real = (process.env.DOCKER_HOST ?? "unix:///var/run/docker.sock").replace("unix://", "");
    const proxy = new EngineProxy(path);
    const server = createServer({ allowHalfOpen: true }, (client) => {
      const upstream = connect({ path: real, allowHalfOpen: true });
      for (const socket of [client, upstream]) {
        proxy.#sockets.add(socket);
        socket.on("error", () => socket.destroy());
        socket.on("close", () => void proxy.#sockets.delete(socket));
      }
      client.pipe(upstream).pipe(client);
    });
    proxy.#server = server;
    return new Promise((resolve) => server.listen(path, () => resolve(proxy)));
  }

  die(): void {
    this.#server?.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.die();
    return Promise.resolve();
  }
}

function removeContainersOf(pid: number): void {
  const listed = spawnSync("docker", ["ps", "-aq", "--filter", `label=gym-harbor.pid=${pid}`], { encoding: "utf8" });
  const ids = listed.stdout.split("\n").filter((id) => id !== "");
  if (ids.length > 0) spawnSync("docker", ["rm", "-f", ...ids]);
}
