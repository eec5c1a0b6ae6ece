import { test } from "node:test";
import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import type { Writable } from "node:stream";
import { HarborError } from "../../../lib/errors.ts";
import { inheritedEnv, quoted, type RunOptions, shellQuote, systemRunner } from "../../../lib/runtime/runner.ts";

const runner = systemRunner();
const sh = (script: string, options: RunOptions = {}) => runner.run(["sh", "-c", script], options);
const alive = (pid: number): boolean => {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
};
const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

for (
  const [what, script, ended, exitCode, stdout] of [
    ["a good exit", "echo yes", "exit", 0, "yes\n"],
    ["a failing exit as a result", "echo no; exit 7", "exit", 7, "no\n"],
    ["a timeout's own 124 as the program's word", "exit 124", "exit", 124, ""],
    ["death by a signal", "kill -9 $$", "signal", 137, ""],
  ] as const
) {
  test(`run() reports ${what}`, async () => {
    const result = await sh(script);
    assert.deepEqual([result.ended, result.exitCode, result.stdout], [ended, exitCode, stdout]);
  });
}

test("run() gives /dev/null as standard input unless told otherwise", async () => {
  assert.equal((await sh("cat | wc -c")).stdout.trim(), "0");
  assert.equal((await sh("cat", { stdin: "a\0b" })).stdout, "a\0b");
});

test("at the deadline what was printed is kept and the whole group is dead, even those that ignore SIGTERM", async () => {
  const began = performance.now();
  const result = await sh(`(trap '' TERM; exec sleep 60) & echo $!; sleep 60`, { deadlineMs: 300, graceMs: 200 });
  assert.equal(result.ended, "deadline");
  assert.ok(performance.now() - began < 4000);
  const pid = Number(result.stdout);
  assert.ok(pid > 0);
  for (let tries = 0; tries < 20 && alive(pid); tries++) await sleep(50);
  assert.ok(!alive(pid) || (await sh(`ps -o stat= -p ${pid}`)).stdout.startsWith("Z"));
});

test("a program that ends on SIGTERM may say its last words", async () => {
  const result = await sh(`trap 'echo bye; exit 3' TERM; while :; do sleep 0.05; done`, { deadlineMs: 300 });
  assert.deepEqual([result.ended, result.exitCode, result.stdout], ["deadline", 3, "bye\n"]);
});

test("an abort ends the run and says so; an aborted signal starts nothing", async () => {
  const abort = new AbortController();
  setTimeout(() => abort.abort(), 100);
  assert.equal((await sh("sleep 60", { signal: abort.signal, graceMs: 0 })).ended, "aborted");
  const folder = mkdtempSync(join(tmpdir(), "gh-runner-"));
  assert.equal((await sh(`touch ${folder}/started`, { signal: abort.signal })).ended, "aborted");
  assert.equal((await sh(`ls ${folder}`)).stdout, "");
  rmSync(folder, { recursive: true });
});

test("output past the budget keeps head and tail and counts the middle", async () => {
  const result = await sh("seq 1 100000", { keepBytes: 2000 });
  assert.match(result.stdout, /^1\n2\n3\n/);
  assert.match(result.stdout, /99999\n100000\n$/);
  assert.match(result.stdout, /\[… \d+ bytes left out …\]/);
  assert.equal(result.droppedBytes, 588_895 - 2000);
});

test("all of a large output arrives", async () => {
  let seen = 0;
  await sh("head -c 30000000 /dev/zero", { onStdout: (chunk) => void (seen += chunk.length) });
  assert.equal(seen, 30_000_000);
});

test("a program that does not read its input is no error", async () => {
  const result = await sh("exit 4", { stdin: new Uint8Array(4_000_000) });
  assert.equal(result.exitCode, 4);
});

test("a feeder that waits for room is let go when the program ends", async () => {
  const stuck = (to: Writable) =>
    new Promise<void>(() => {
      to.write(new Uint8Array(1_000_000)); // and never settles
    });
  assert.equal((await sh("exit 5", { stdin: stuck })).exitCode, 5);
});

test("a feeder that fails ends the program and is thrown", async () => {
  const began = performance.now();
  await assert.rejects(sh("cat; sleep 60", { stdin: () => Promise.reject(new Error("source gone")) }), /source gone/);
  assert.ok(performance.now() - began < 3000);
});

test("a child left behind with our pipes delays the end by a grace, and what it wrote meanwhile is kept", async () => {
  const began = performance.now();
  const result = await sh("(sleep 0.3; echo late; sleep 20) & echo $!");
  const took = performance.now() - began;
  const [pid, late] = result.stdout.split("\n");
  process.kill(Number(pid), "SIGKILL");
  assert.equal(late, "late");
  assert.ok(took > 1500 && took < 6000, `${took} ms`);
});

test("a program that ended before its deadline keeps its own exit code while its pipes are held", async () => {
  const result = await sh("sleep 20 & exit 9", { deadlineMs: 500 });
  assert.deepEqual([result.ended, result.exitCode], ["exit", 9]);
});

test("start(): a slow reader gets everything, long after the program ended", async () => {
  const child = await runner.start(["sh", "-c", "head -c 600000 /dev/zero"]);
  child.stderr.resume();
  let seen = 0;
  const reading = (async () => {
    for await (const chunk of child.stdout) {
      if (seen === 0) await sleep(3000);
      seen += (chunk as Uint8Array).length;
    }
  })();
  await child.ended;
  await reading;
  assert.equal(seen, 600_000);
});

const missing = mkdtempSync(join(tmpdir(), "gh-runner-"));
writeFileSync(join(missing, "plain"), "no program");
chmodSync(join(missing, "plain"), 0o644);
process.on("exit", () => rmSync(missing, { recursive: true, force: true }));

for (
  const [what, argv, options, message] of [
    ["no-such-program-here", ["no-such-program-here"], {}, /^Cannot start no-such-program-here: no such program$/],
    ["a file without x", [join(missing, "plain")], {}, /it may not be executed/],
    ["a missing folder", ["true"], { cwd: "/no/such/folder" }, /there is no working folder \/no\/such\/folder$/],
    ["too many arguments", ["true", "x".repeat(3_000_000)], {}, /its arguments and environment are too long/],
    ["a NUL byte", ["true", "a\0b"], {}, /^Cannot start true: /],
  ] as const
) {
  test(`run() names why it cannot start: ${what}`, async () => {
    await assert.rejects(runner.run(argv, options), (error) => {
      assert.ok(error instanceof HarborError, String(error));
      assert.equal(error.code, "machine.lacks");
      assert.match(error.message, message);
      return true;
    });
  });
}

test("an environment that is given is the whole environment", async () => {
  const result = await runner.run(["/usr/bin/env"], { env: { ONLY: "1", BUN_OPTIONS: "for the task" } });
  assert.deepEqual(result.stdout.trim().split("\n").sort(), ["BUN_OPTIONS=for the task", "ONLY=1"]);
});

test("what steers our own runtime is not inherited", () => {
  const inherited = inheritedEnv({ PATH: "/bin", BUN_OPTIONS: "--preload x", BUN_BE_BUN: "1", BUN_INSPECT: "x" });
  assert.deepEqual(inherited, { PATH: "/bin" });
});

test("the trace shows each argv ready to paste", async () => {
  const lines: string[] = [];
  await systemRunner((line) => lines.push(line)).run(["echo", "it's", "$HOME"]);
  assert.deepEqual(lines, [`echo 'it'\\''s' '$HOME'`]);
});

for (const word of ["", "a b", "it's", "$x`y`", "a\nb", "*", "~", "a=b", "-n", "\\", "ü", "#x", "!"]) {
  test(`shellQuote() survives a shell: ${JSON.stringify(word)}`, async () => {
    assert.equal((await sh(`printf %s ${shellQuote(word)}`)).stdout, word);
    assert.equal((await sh(`printf '<%s>' ${quoted([word, word])}`)).stdout, `<${word}><${word}>`);
  });
}

test("an `end` of its own takes the place of signals; one that fails is followed by SIGKILL", async () => {
  const script = "trap 'exit 5' INT; trap '' TERM; while :; do sleep 0.05; done";
  const own = await sh(script, { deadlineMs: 300, end: (program) => Promise.resolve(program.kill("SIGINT")) });
  assert.deepEqual([own.ended, own.exitCode], ["deadline", 5]);
  const failing = await sh(script, { deadlineMs: 300, end: () => Promise.reject(new Error("no way")) });
  assert.deepEqual([failing.ended, failing.exitCode], ["deadline", 137]);
});
