/** `dataset prepare` and `--offline` on engines: what is built once stays, what is interrupted goes on. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { runCli, startCli } from "../support/cli.ts";
import { sandboxes, sandboxTest } from "../support/kit.ts";
import { IMAGE, TempFolder } from "../support/tasks.ts";

type Engine = "docker" | "podman";

/** A dataset of tasks that only a builder can make, each from a context of its own. */
class Contexts extends TempFolder {
  readonly #mark = crypto.randomUUID();

  constructor(readonly engine: Engine, names: readonly string[], run = "true") {
    super("prepare");
    for (const name of names) {
      this.task(`data/${name}`, {
        image: null,
        solve: "cp /mark got",
        test: "cmp /mark /w/got && echo 1 > /logs/verifier/reward.txt",
        files: {
          "environment/Dockerfile": `FROM ${IMAGE}\nCOPY mark /mark\nRUN ${run}\nWORKDIR /w\n`,
          "environment/mark": `${this.#mark} ${name}\n`,
        },
      });
    }
  }

  /** Ids of the contexts that are recorded. */
  recorded(): string[] {
    const path = this.join("data", "built-images.json");
    return existsSync(path) ? Object.keys(JSON.parse(readFileSync(path, "utf8"))) : [];
  }

  args(...more: string[]): string[] {
    return ["dataset", "prepare", this.join("data"), "--sandbox", this.engine, ...more];
  }

  prepare(...more: string[]) {
    return runCli(this.args(...more), { cwd: this.path });
  }

  override [Symbol.dispose](): void {
    for (const hash of this.recorded()) spawnSync(this.engine, ["rmi", "-f", `hb__${hash}`]);
    super[Symbol.dispose]();
  }
}

const built = (stderr: string): number => stderr.match(/^building hb__/gm)?.length ?? 0;

for (const engine of sandboxes(["docker", "podman"]) as Engine[]) {
  sandboxTest(engine, "prepare killed after the second of five builds builds three the next time", async () => {
    using contexts = new Contexts(engine, ["a", "b", "c", "d", "e"], "sleep 1");
    const started = startCli(contexts.args("++builds.concurrency=1"), { cwd: contexts.path });
    for (let waited = 0; contexts.recorded().length < 2 && waited < 60_000; waited += 20) await delay(20);
    started.kill("SIGKILL");
    await started.wait();
    assert.equal(contexts.recorded().length, 2, started.stderr());
    const next = await contexts.prepare("++builds.concurrency=1");
    assert.equal(next.code, 0, next.stderr);
    assert.deepEqual([built(next.stderr), contexts.recorded().length], [3, 5], next.stderr);
  });

  sandboxTest(engine, "E7: a build is used again, made again when its image is gone or a mode changed", async () => {
    using contexts = new Contexts(engine, ["a", "b"]);
    assert.equal(built((await contexts.prepare()).stderr), 2);
    const again = await contexts.prepare();
    assert.equal(built(again.stderr), 0, again.stderr);
    assert.match(again.stdout, /^hb__[0-9a-f]{32}\tbuilt before\t1$/m);

    const [gone] = contexts.recorded();
    assert.equal(spawnSync(engine, ["rmi", "-f", `hb__${gone}`]).status, 0);
    assert.equal(built((await contexts.prepare()).stderr), 1);

    chmodSync(contexts.join("data", "a", "environment", "mark"), 0o755);
    assert.equal(built((await contexts.prepare()).stderr), 1);
  });

  sandboxTest(engine, "two prepares at once build every context once", async () => {
    using contexts = new Contexts(engine, ["a", "b"], "sleep 1");
    const ended = await Promise.all([
      contexts.prepare("--output", "one/r.jsonl"),
      contexts.prepare("--output", "two/r.jsonl"),
    ]);
    assert.deepEqual(ended.map(({ code }) => code), [0, 0], ended.map(({ stderr }) => stderr).join("\n"));
    assert.equal(ended.reduce((sum, { stderr }) => sum + built(stderr), 0), 2);
  });

  sandboxTest(
    engine,
    "--offline names every missing image before anything starts, and runs when none is missing",
    async () => {
      using contexts = new Contexts(engine, ["a"]);
      contexts.task("data/pulls", {
        image: null,
        files: { "environment/Dockerfile": "FROM no-such-base:1\nENV A=1\n" },
      });
      contexts.task("data/named", { image: "no-such-image:1" });
      const validate = (...more: string[]) =>
        runCli(["validate", contexts.join("data"), "--sandbox", engine, ...more], {
          cwd: contexts.path,
          env: { GYM_HARBOR_OFFLINE: "1" },
        });
      for (const run of [await validate(), await contexts.prepare("--offline")]) {
        assert.equal(run.code, 2, run.stderr);
        assert.match(
          run.stderr,
          /Offline: 3 image\(s\) are missing: hb__[0-9a-f]{32}, no-such-base:1, no-such-image:1; run gym-harbor bundle import/,
        );
        assert.equal(built(run.stderr), 0);
      }
      assert.equal(existsSync(contexts.join("results/harbor/validation/data/rollouts.jsonl")), false);
      assert.equal((await contexts.prepare("--only-tasks", "a")).code, 0);
      const offline = await validate("--only-tasks", "a");
      assert.deepEqual([offline.code, built(offline.stderr)], [0, 0], offline.stderr);
    },
  );

  sandboxTest(engine, "a build that fails leaves its task out of prepare, with its reason and its log", async () => {
    using contexts = new Contexts(engine, ["good"]);
    contexts.task("data/bad", {
      image: null,
      files: { "environment/Dockerfile": `FROM ${IMAGE}\nCOPY Dockerfile /x\nRUN echo the-real-cause >&2; exit 9\n` },
    });
    const run = await contexts.prepare();
    assert.equal(run.code, 1, run.stderr);
    const results = contexts.join("results/harbor/data");
    const skipped = JSON.parse(readFileSync(`${results}/skipped.json`, "utf8"));
    assert.deepEqual(Object.keys(skipped), ["bad"]);
    assert.match(skipped.bad, /the-real-cause/);
    assert.match(readFileSync(`${results}/tasks_harbor_oracle.jsonl`, "utf8"), /"good"/);
    const images = JSON.parse(readFileSync(`${results}/images.json`, "utf8"));
    assert.deepEqual(images, contexts.recorded().map((hash) => `hb__${hash}`));
    assert.match(run.stderr, /Run config written to .*; 1 task\(s\) prepared/);
  });
}
