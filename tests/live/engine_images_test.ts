/** Images between real engines and our store: the same by their digests on both sides, whoever brings them in. */
import { test } from "node:test";
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { localAlias } from "../../lib/images/alias.ts";
import { systemClock } from "../../lib/runtime/clock.ts";
import { systemRunner } from "../../lib/runtime/runner.ts";
import { newRunId } from "../../lib/sandbox/owner.ts";
import type { ImageNeed, ProviderDeps, SandboxProvider } from "../../lib/sandbox/provider.ts";
import { openStore } from "../../lib/store/layout.ts";
import type { ImageStore } from "../../lib/store/store.ts";
import { dockerProvider } from "../../providers/docker.ts";
import { podmanProvider } from "../../providers/podman.ts";
import { buildWith, engineSkip, namedNeed } from "../support/engines.ts";

type Engine = "docker" | "podman";
const engines = { docker: dockerProvider, podman: podmanProvider } as const;
const BASE = "gym-base:busybox";
const soon = () => AbortSignal.timeout(120_000);

interface Bench extends AsyncDisposable {
  engine: Engine;
  /** A fresh provider, so that nothing is remembered. */
  provider(more?: Partial<ProviderDeps>): SandboxProvider;
  store: ImageStore;
  folder: string;
  trace: string[];
  /** An image of this test alone, in the engine; it and all its names go with the bench. */
  build(more?: string): Promise<string>;
  engineSays(...words: string[]): string;
}

function bench(engine: Engine): Bench {
  const folder = mkdtempSync(join(tmpdir(), "gh-images-io-"));
  const trace: string[] = [];
  const names: string[] = [];
  const scratch = join(folder, newRunId());
  mkdirSync(scratch);
  const provider = (more: Partial<ProviderDeps> = {}) =>
    engines[engine]({
      runner: systemRunner((line) => trace.push(line)),
      clock: systemClock,
      env: { ...process.env, TMPDIR: folder },
      emit: () => {},
      scratch,
      options: {},
      ...more,
    });
  let contexts = 0;
  const engineSays = (...words: string[]) => spawnSync(engine, words, { encoding: "utf8" }).stdout.trim();
  return {
    engine,
    provider,
    folder,
    trace,
    engineSays,
    store: openStore(join(folder, "store"), { clock: systemClock }),
    build(more = "") {
      const context = join(folder, `context-${contexts++}`);
      mkdirSync(context);
      writeFileSync(join(context, "file"), `made for ${crypto.randomUUID()}`);
      const dockerfile = join(context, "Dockerfile");
      writeFileSync(
        dockerfile,
        `FROM ${BASE}\nCOPY file /file\nENV A="b c"\nWORKDIR /srv\nHEALTHCHECK CMD true\n${more}`,
      );
      const tag = `hb__${crypto.randomUUID().replaceAll("-", "")}`;
      // podman 4.3 fails a build while somebody else removes an image ("layer not known").
      try {
        buildWith(engine, context, tag);
      } catch {
        buildWith(engine, context, tag);
      }
      names.push(tag);
      return Promise.resolve(tag);
    },
    [Symbol.asyncDispose]() {
      const all = engineSays("images", "--format", "{{.Repository}}:{{.Tag}}").split("\n");
      const ours = all.filter((one) => names.some((name) => one.includes(name)));
      spawnSync(engine, ["rmi", "-f", ...ours]);
      rmSync(folder, { recursive: true, force: true });
      return Promise.resolve();
    },
  };
}

const named = (reference: string, more: Partial<Extract<ImageNeed["source"], { kind: "named" }>> = {}): ImageNeed => ({
  ...namedNeed(reference),
  source: { kind: "named", reference, ...more },
});
const prepare = (provider: SandboxProvider, need: ImageNeed) => provider.prepare(need, soon(), () => {});
const forget = ({ engine }: Bench, ...names: string[]) => spawnSync(engine, ["rmi", "-f", ...names]);
const starts = async (provider: SandboxProvider, image: Awaited<ReturnType<typeof prepare>>) => {
  const owner = { run: newRunId(), host: "test", pid: process.pid, start: "" };
  await using box = await provider.open({
    image,
    owner,
    episode: "0",
    role: "agent",
    env: {},
    workdir: undefined,
    user: undefined,
    network: "no-network",
    limits: {},
    ttlMs: 60_000,
    readyTimeoutMs: 60_000,
  }, soon());
  const { stdout } = await box.exec({
    run: { script: 'pwd; echo "$A"; cat /file' },
    purpose: "server",
    deadlineMs: 20_000,
  }, soon());
  return stdout;
};

const cases: Record<string, (bench: Bench) => Promise<void>> = {
  "an image goes out, is deleted, and comes in again as the same one, under its names": async (bench) => {
    const tag = await bench.build();
    const provider = bench.provider();
    const local = await provider.local!(tag, soon());
    const saved = await provider.saveInto!(tag, bench.store, [tag], soon());
    assert.equal(saved.config.digest, local!.configDigest, "byte for byte");
    assert.deepEqual(saved.file.config?.Healthcheck === undefined, false);
    forget(bench, tag);
    assert.equal(await provider.local!(tag, soon()), undefined);
    await provider.takeIn!(saved, bench.store, [tag], soon());
    for (const name of [tag, localAlias(tag, saved.config.digest)]) {
      assert.equal((await provider.local!(name, soon()))?.configDigest, local!.configDigest, name);
    }
    bench.trace.length = 0;
    await provider.takeIn!(saved, bench.store, [tag], soon());
    assert.deepEqual(bench.trace.filter((line) => !/image inspect/.test(line)), [], "a second time only looks");
    forget(bench, tag);
    await provider.takeIn!(saved, bench.store, [tag], soon());
    assert.equal(
      bench.trace.filter((line) => /\b(load)\b/.test(line)).length,
      0,
      "a name that is missing is only given",
    );
    bench.trace.length = 0;
    const again = await provider.saveInto!(tag, bench.store, [`${tag}:two`], soon());
    assert.deepEqual(again.config, saved.config);
    assert.equal(bench.trace.some((line) => / save /.test(line)), false, "what the store has is not asked for");
  },
  "an image of our store is loaded rather than pulled, offline too": async (bench) => {
    const tag = await bench.build();
    const saved = await bench.provider().saveInto!(tag, bench.store, [tag, `registry.invalid/${tag}:1`], soon());
    forget(bench, tag);
    for (const offline of [false, true]) {
      const provider = bench.provider({ store: bench.store, offline });
      const image = await prepare(provider, named(`registry.invalid/${tag}:1`));
      assert.equal(image.reference, `registry.invalid/${tag}:1`);
      assert.match(await starts(provider, image), /^\/srv\nb c\nmade for /);
      forget(
        bench,
        ...bench.engineSays("images", "--format", "{{.Repository}}:{{.Tag}}").split("\n").filter((one) =>
          one.includes(tag)
        ),
      );
    }
    const gone = bench.provider({ offline: true });
    await assert.rejects(prepare(gone, named(tag)), { code: "image.failed", hint: /bundle import/ });
    assert.equal(bench.trace.some((line) => / pull /.test(line)), false);
    assert.equal(saved.names.length > 0, true);
  },
  "a pin that only its local alias stands for is found, offline, and told as the pin": async (bench) => {
    const tag = await bench.build();
    const pin = `registry.invalid/team/${tag}@sha256:${"0".repeat(64)}`;
    const provider = bench.provider({ offline: true });
    const saved = await provider.saveInto!(tag, bench.store, [tag], soon());
    await provider.takeIn!(saved, bench.store, [pin], soon());
    const image = await prepare(provider, named(pin, { configDigest: saved.config.digest }));
    assert.deepEqual([image.reference, image.alias], [pin, localAlias(pin, saved.config.digest)]);
    assert.match(await starts(provider, image), /made for/);
    await assert.rejects(prepare(provider, named(pin, { configDigest: `sha256:${"1".repeat(64)}` })), {
      code: "image.failed",
    });
  },
  "two processes that bring in one image load it once": async (bench) => {
    const tag = await bench.build();
    const saved = await bench.provider().saveInto!(tag, bench.store, [tag], soon());
    forget(bench, tag);
    bench.trace.length = 0;
    await Promise.all([1, 2, 3].map(() => bench.provider().takeIn!(saved, bench.store, [tag], soon())));
    assert.equal(bench.trace.filter((line) => / load /.test(line)).length, 1);
  },
  "an image deleted behind our back is told by its name when it is to start, and found missing by the next look":
    async (bench) => {
      const tag = await bench.build();
      const provider = bench.provider();
      const image = await prepare(provider, named(tag));
      forget(bench, tag);
      await assert.rejects(starts(provider, image), { code: "image.failed", message: new RegExp(`${tag} is gone`) });
      await assert.rejects(prepare(bench.provider(), named(tag)), { code: "image.failed", message: /never pushed/ });
    },
  "what the engine does not have cannot be saved": async (bench) => {
    await assert.rejects(bench.provider().saveInto!("none:1", bench.store, [], soon()), { code: "image.failed" });
  },
};

for (const engine of ["docker", "podman"] as const) {
  for (const [name, check] of Object.entries(cases)) {
    if (!name.includes(process.env.GYM_HARBOR_CASE ?? "")) continue;
    test(`${engine}: ${name}`, { skip: engineSkip(engine) ?? false }, async () => {
      await using one = bench(engine);
      await check(one);
    });
  }
}
