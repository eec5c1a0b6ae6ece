import { test } from "node:test";
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { HarborError } from "../../lib/errors.ts";
import type { Builder, BuilderOptions, BuildRequest } from "../../lib/images/builder.ts";
import { systemClock } from "../../lib/runtime/clock.ts";
import { systemRunner } from "../../lib/runtime/runner.ts";
import { chooseBuilder } from "../../providers/builders/mod.ts";
import { engineSkip } from "../support/engines.ts";

const BASE = "gym-base:busybox";
const soon = () => AbortSignal.timeout(120_000);

type ToolName = "docker" | "podman" | "buildah";

interface Bench extends AsyncDisposable {
  tool: ToolName;
  folder: string;
  output: string[];
  builder(more?: Partial<BuilderOptions>): Promise<Builder>;
  request(dockerfile: string, more?: Partial<BuildRequest>): BuildRequest;
}

function bench(tool: ToolName): Bench {
  const folder = mkdtempSync(join(tmpdir(), "gh-builders-"));
  const output: string[] = [];
  const names = new Set<string>();
  let contexts = 0;
  // buildah's own storage would have to pull what podman's has.
  const storage = join(folder, "storage.conf");
  const env = { ...process.env, ...(tool === "buildah" && { CONTAINERS_STORAGE_CONF: storage }) };
  writeFileSync(
    storage,
    `[storage]\ndriver = "overlay"\ngraphroot = "/var/lib/containers/storage"\nrunroot = "/run/containers/storage"\n`,
  );
  return {
    tool,
    folder,
    output,
    builder: (more = {}) =>
      chooseBuilder(
        {
          tool,
          platform: "linux/amd64",
          retryDelayMs: 50,
          ...(tool === "buildah" && { repository: "127.0.0.1:1/x" }),
          ...more,
        },
        { provider: tool, runner: systemRunner(), clock: systemClock, env, scratch: join(folder, "scratch") },
        soon(),
      ),
    request(dockerfile, more = {}) {
      const context = join(folder, `context-${contexts++}`);
      mkdirSync(context);
      writeFileSync(join(context, "Dockerfile"), dockerfile);
      writeFileSync(join(context, "file"), "from the context");
      const request = {
        context,
        dockerfile: join(context, "Dockerfile"),
        name: `hb__${crypto.randomUUID().replaceAll("-", "")}`,
        platform: "linux/amd64",
        args: {},
        timeoutMs: 120_000,
        push: false,
        logFile: join(folder, "logs", `${contexts}.log`),
        ...more,
      };
      names.add(request.name);
      return request;
    },
    async [Symbol.asyncDispose]() {
      spawnSync(tool, ["rmi", ...(tool === "buildah" ? [] : ["-f"]), ...names]);
      rmSync(folder, { recursive: true, force: true });
      await Promise.resolve();
    },
  };
}

const cases: Record<string, (bench: Bench) => Promise<void>> = {
  "an image is built, and its configuration told": async (bench) => {
    const builder = await bench.builder();
    const request = bench.request(
      `FROM ${BASE} AS base\nARG WORD\nENV WORD=$WORD\nWORKDIR /srv\nUSER 12\nCOPY file /f\nHEALTHCHECK CMD true\nENTRYPOINT ["/bin/sh"]\nFROM base AS more\nRUN false\n`,
      { args: { WORD: "two words" }, target: "base", labels: { a: "b" } },
    );
    const built = await builder.build(request, soon(), () => {});
    assert.deepEqual(
      [
        built.reference,
        built.platform,
        built.pushed,
        built.config.WorkingDir,
        built.config.User,
        built.config.Entrypoint,
      ],
      [request.name, "linux/amd64", false, "/srv", "12", ["/bin/sh"]],
    );
    assert.ok(built.config.Env?.includes("WORD=two words"));
    assert.ok(built.config.Healthcheck, "kept, since the format is docker's");
    assert.equal((built.config.Labels as Record<string, string>).a, "b");
    assert.match(built.configDigest, /^sha256:[0-9a-f]{64}$/);
    assert.equal(await builder.has(request.name, soon()), true);
    assert.equal(await builder.has("hb__none", soon()), false);
    assert.match(readFileSync(request.logFile, "utf8"), /WORKDIR \/srv/);
  },
  "a failing RUN is the image's failure, with its last words": async (bench) => {
    const builder = await bench.builder();
    const request = bench.request(`FROM ${BASE}\nRUN echo the real reason >&2; exit 7\n`);
    await assert.rejects(builder.build(request, soon(), () => {}), (error) => {
      assert.ok(error instanceof HarborError);
      assert.deepEqual([error.code, error.details?.class], ["image.failed", "build"]);
      assert.match(error.message, /^image build failed \(exit \d+\): /);
      assert.match(error.details?.tail as string, /the real reason/);
      assert.match(readFileSync(request.logFile, "utf8"), /the real reason/);
      return true;
    });
    assert.equal(await builder.has(request.name, soon()), false);
  },
};

for (const tool of ["docker", "podman", "buildah"] as const) {
  for (const [name, check] of Object.entries(cases)) {
    if (!name.includes(process.env.GYM_HARBOR_CASE ?? "")) continue;
    test(`${tool}: ${name}`, { skip: engineSkip(tool === "docker" ? "docker" : "podman") ?? false }, async () => {
      await using one = bench(tool);
      await check(one);
    });
  }
}
