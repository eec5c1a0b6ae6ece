/**
 * The program interrupted: by one or two signals it cleans up after itself; by SIGKILL at any moment it leaves whole rows
 * and nothing that `sandbox gc` does not find. `GYM_HARBOR_TEST_KILLS=40` kills more often than the few of CI,
 * `GYM_HARBOR_TEST_SEED` repeats the moments of an earlier run.
 */
import assert from "node:assert/strict";
import process from "node:process";
import { existsSync, readFileSync } from "node:fs";
import { runCli, startCli, type StartedCli } from "../support/cli.ts";
import { sandboxes, type SandboxName, sandboxTest } from "../support/kit.ts";
import { Trace } from "../support/leftovers.ts";
import { IMAGE, readRows, type Row, runFiles, TempFolder } from "../support/tasks.ts";

const KILLS = Number(process.env.GYM_HARBOR_TEST_KILLS ?? 3);
const NAMES = ["a", "b", "c", "d"];

/** Four tasks that take a while each, a run of them, and its trace on this machine. */
class Interruptible implements Disposable {
  readonly folder = new TempFolder("int");
  readonly output = this.folder.join("out", "rollouts.jsonl");
  readonly trace: Trace;

  constructor(private readonly sandbox: SandboxName, seconds: number) {
    this.trace = new Trace(this.folder, sandbox);
    const sleep = `sleep 600.${this.trace.mark} & sleep ${seconds}`;
    for (const name of NAMES) {
      this.folder.task(`data/${name}`, { solve: sleep, test: `sleep 0.1; echo 1 > /logs/verifier/reward.txt` });
    }
  }

  start(...more: string[]): StartedCli {
    const argv = [
      "validate",
      this.folder.join("data"),
      "--sandbox",
      this.sandbox,
      "--output",
      this.output,
      "--concurrency",
      "2",
    ];
    const started = startCli([...argv, ...more], { env: this.trace.env });
    this.trace.pids.push(started.pid);
    return started;
  }

  /** Waits for the first row on disk. */
  async firstRow(): Promise<void> {
    for (let waited = 0; waited < 60_000; waited += 20) {
      if (existsSync(this.output) && readFileSync(this.output, "utf8").includes("\n")) return;
      await delay(20);
    }
    throw new Error("no row within a minute");
  }

  /** Resumes and proves that every task has exactly one row. */
  async finish(): Promise<void> {
    const result = await this.start("--resume").wait();
    const run = runFiles(this.output, result);
    assert.equal(result.code, 0, `${result.stdout}\n${result.stderr}`);
    assert.deepEqual(taskIds(run.rows), NAMES, "one row per task, no duplicates");
    assert.equal(run.summary?.counts.missing, 0);
  }

  async collect(): Promise<void> {
    const gc = await runCli(["sandbox", "gc"], { env: this.trace.env });
    assert.equal(gc.code, 0, gc.stderr);
  }

  [Symbol.dispose](): void {
    for (const left of this.trace.processes()) process.kill(Number(/\d+/.exec(left)![0]), "SIGKILL");
    this.folder[Symbol.dispose]();
  }
}

const delay = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const taskIds = (rows: readonly Row[]): string[] => rows.map((row) => row._ng_task_id.task_id).sort();

for (const sandbox of sandboxes()) {
  for (const [signal, code] of [["SIGINT", 130], ["SIGTERM", 143]] as const) {
    sandboxTest(sandbox, `B13: one ${signal} cancels, cleans up, writes the summary and exits ${code}`, async () => {
      using run = new Interruptible(sandbox, 1.5);
      const started = run.start();
      await run.firstRow();
      started.kill(signal);
      const result = await started.wait();
      const files = runFiles(run.output, result);
      assert.equal(result.code, code, result.stderr);
      assert.ok(files.rows.length < NAMES.length, "it was interrupted");
      assert.deepEqual(files.failures, [], "a cancelled episode leaves no row");
      assert.equal(
        files.summary?.counts.missing,
        NAMES.length - files.rows.length,
        JSON.stringify(files.summary?.counts),
      );
      assert.match(result.stderr, /--resume/, "the next step is named");
      assert.deepEqual(await run.trace.gone(() => run.trace.leftovers(), 2000), []);
      await run.finish();
    });
  }

  sandboxTest(sandbox, "B14: a second SIGINT leaves at once, and leaves nothing", async () => {
    using run = new Interruptible(sandbox, 20);
    const started = run.start();
    await delay(sandbox === "host" ? 600 : 3000);
    started.kill("SIGINT");
    await delay(100);
    started.kill("SIGINT");
    const began = performance.now();
    const result = await started.wait();
    assert.ok(performance.now() - began < 10_000, `took ${performance.now() - began} ms`);
    assert.equal(result.code, 130, result.stderr);
    assert.deepEqual(await run.trace.gone(() => [...run.trace.processes(), ...run.trace.containers()], 3000), []);
    await run.collect();
    assert.deepEqual(run.trace.leftovers(), []);
  });

  sandboxTest(sandbox, "B14: SIGINT while sandboxes start leaves nothing", async () => {
    for (const ms of [60, 250, 600]) {
      using run = new Interruptible(sandbox, 1);
      const started = run.start();
      await delay(ms);
      started.kill("SIGINT");
      const result = await started.wait();
      // before our handler stands, the runtime's own end is as good
      assert.ok(result.code === 130 || result.signal === "SIGINT", `after ${ms} ms: ${result.code} ${result.stderr}`);
      assert.deepEqual(await run.trace.gone(() => run.trace.leftovers(), 3000), [], `after ${ms} ms`);
    }
  });

  sandboxTest(
    sandbox,
    `I4: SIGKILL at ${KILLS} random moments leaves whole rows and nothing that gc does not find`,
    async () => {
      const seed = Number(process.env.GYM_HARBOR_TEST_SEED ?? Math.floor(Math.random() * 1e9));
      const random = mulberry32(seed);
      const whole = sandbox === "host" ? 2500 : 6000;
      for (let kill = 0; kill < KILLS; kill++) {
        const ms = Math.round(random() * whole);
        const told = `seed ${seed}, kill ${kill} after ${ms} ms`;
        using run = new Interruptible(sandbox, 0.4);
        const started = run.start();
        await delay(ms);
        started.kill("SIGKILL");
        await started.wait();
        const before = readRows(run.output);
        assert.equal(new Set(taskIds(before)).size, before.length, told);
        if (sandbox === "host") {
          assert.deepEqual(
            await run.trace.gone(() => run.trace.processes(), 3000),
            [],
            `${told}: host processes live on`,
          );
        }
        if (kill % 2 === 0) {
          await run.collect();
          assert.deepEqual(await run.trace.gone(() => run.trace.leftovers(), 2000), [], `${told}: after gc`);
          await run.finish();
        } else {
          await run.finish(); // the next start sweeps as well
          assert.deepEqual(await run.trace.gone(() => run.trace.leftovers(), 2000), [], `${told}: after the next run`);
        }
        const after = readRows(run.output);
        for (const row of before) {
          assert.ok(after.some((one) => JSON.stringify(one) === JSON.stringify(row)), `${told}: a row changed`);
        }
      }
    },
  );
}

for (const sandbox of sandboxes(["docker", "podman"])) {
  sandboxTest(sandbox, "I4: SIGKILL during a build leaves no build behind", async () => {
    using folder = new TempFolder("build");
    const trace = new Trace(folder, sandbox);
    const task = folder.task("builds", {
      image: null,
      files: { "environment/Dockerfile": `FROM ${IMAGE}\nRUN sleep 600.${trace.mark}\n` },
    });
    const started = startCli(["validate", task, "--sandbox", sandbox, "--output", folder.join("out", "r.jsonl")], {
      env: trace.env,
    });
    trace.pids.push(started.pid);
    const building = () => trace.processes().some((one) => /: sleep 600/.test(one));
    for (let waited = 0; !building() && waited < 30_000; waited += 100) await delay(100);
    assert.ok(building(), `the build began: ${started.stderr()}`);
    started.kill("SIGKILL");
    await started.wait();
    const gc = await runCli(["sandbox", "gc"], { env: trace.env });
    assert.equal(gc.code, 0, gc.stderr);
    assert.deepEqual(await trace.gone(() => trace.leftovers(), 3000), []);
  });
}

/** A small seeded generator, so that a failing moment can be repeated. */
function mulberry32(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
