import { test } from "node:test";
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { HarborError } from "../../lib/errors.ts";
import type { Event } from "../../lib/events.ts";
import { systemClock } from "../../lib/runtime/clock.ts";
import { systemRunner } from "../../lib/runtime/runner.ts";
import { newRunId, thisOwner } from "../../lib/sandbox/owner.ts";
import type { ImageNeed, PreparedImage, ProviderDeps, Sandbox, SandboxProvider } from "../../lib/sandbox/provider.ts";
import { dockerProvider } from "../../providers/docker.ts";
import { podmanProvider } from "../../providers/podman.ts";
import { buildWith, engineSkip, namedNeed } from "../support/engines.ts";

const BASE = "gym-base:busybox";
const engines = { docker: dockerProvider, podman: podmanProvider } as const;
const soon = () => AbortSignal.timeout(120_000);

interface Bench extends AsyncDisposable {
  engine: "docker" | "podman";
  provider: SandboxProvider;
  folder: string;
  events: Event[];
  /** A need for an image that is built from a Dockerfile under a tag of this test alone. */
  need(dockerfile: string): ImageNeed;
  open(image: PreparedImage): Promise<Sandbox>;
}

function bench(engine: "docker" | "podman"): Bench {
  const folder = mkdtempSync(join(tmpdir(), "gh-images-"));
  mkdirSync(join(folder, "scratch"));
  const events: Event[] = [];
  const tags = new Set<string>();
  const deps: ProviderDeps = {
    runner: systemRunner(),
    clock: systemClock,
    env: process.env,
    emit: (event) => void events.push(event),
    scratch: join(folder, "scratch"),
    options: {},
  };
  const provider = engines[engine](deps);
  let contexts = 0;
  let boxes = 0;
  const run = newRunId();
  return {
    engine,
    provider,
    folder,
    events,
    need(dockerfile) {
      const context = join(folder, `context-${contexts++}`);
      mkdirSync(context);
      writeFileSync(join(context, "Dockerfile"), dockerfile);
      writeFileSync(join(context, "file"), "from the context");
      const tag = `hb__${crypto.randomUUID().replaceAll("-", "")}`;
      tags.add(tag);
      buildWith(engine, context, tag);
      return namedNeed(tag);
    },
    open: (image) =>
      provider.open({
        image,
        owner: thisOwner(run),
        episode: `${boxes++}`,
        role: "agent",
        env: {},
        workdir: undefined,
        user: undefined,
        network: "no-network",
        limits: {},
        ttlMs: 600_000,
        readyTimeoutMs: 60_000,
      }, soon()),
    async [Symbol.asyncDispose]() {
      await provider.sweep({ run, evenAlive: true }, soon());
      spawnSync(engine, ["rmi", "-f", ...tags]);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

const prepare = ({ provider, events }: Bench, need: ImageNeed, signal = soon()) =>
  provider.prepare(need, signal, (event) => events.push(event));
const out = async (box: Sandbox, script: string) =>
  (await box.exec({ run: { script }, purpose: "server", deadlineMs: 30_000 }, soon())).stdout.trim();
const cases: Record<string, (bench: Bench) => Promise<void>> = {
  "an image that is nowhere is told with what to do": async (bench) => {
    const need = namedNeed("gym-harbor.invalid/none:1");
    await assert.rejects(prepare(bench, need), (error) => {
      assert.ok(error instanceof HarborError && error.code === "image.failed", String(error));
      assert.match(error.message, /gym-harbor\.invalid\/none:1 is not on this machine and cannot be pulled/);
      assert.ok(error.hint);
      return true;
    });
  },
  "a task without an image is refused when it is prepared": async (bench) => {
    await assert.rejects(prepare(bench, { ...namedNeed(""), source: { kind: "none" } }), { code: "task.unsupported" });
    await assert.rejects(prepare(bench, { ...namedNeed(BASE), limits: { gpus: 1 } }), {
      code: "task.unsupported",
      message: /GPU/,
    });
  },
  "B18: an image without a shell says so": async (bench) => {
    const image = await prepare(bench, bench.need('FROM scratch\nCOPY file /file\nCMD ["/file"]\n'));
    await assert.rejects(bench.open(image), { code: "sandbox.failed", message: /cannot run \/bin\/sh/ });
  },
  "an image whose USER is in no passwd still starts, and says so when a command runs": async (bench) => {
    const image = await prepare(bench, bench.need(`FROM ${BASE}\nUSER ghost\n`));
    const opened = await bench.open(image).catch((error) => error);
    if (opened instanceof HarborError) return assert.match(opened.message, /ghost/);
    await using box = opened as Sandbox;
    await assert.rejects(out(box, "true"), { message: /ghost/ });
  },
  "an image without tar takes and gives files all the same": async (bench) => {
    const image = await prepare(bench, bench.need(`FROM ${BASE}\nRUN rm -f /bin/tar /usr/bin/tar\n`));
    await using box = await bench.open(image);
    const from = join(bench.folder, "up");
    const to = join(bench.folder, "down");
    for (const path of [from, to]) mkdirSync(path);
    writeFileSync(join(from, "ä.txt"), "carried");
    const result = await box.exec({
      run: { script: "cat /in/d/*; echo made > /in/d/out" },
      purpose: "verifier",
      deadlineMs: 30_000,
      unpack: [{ from, to: "/in/d" }],
      bring: [{ from: "/in/d", to, limits: { maxEntries: 10, maxBytes: 1000 } }, {
        from: "/none",
        to,
        limits: { maxEntries: 10, maxBytes: 1000 },
      }],
    }, soon());
    assert.equal(result.stdout, "carried");
    assert.equal(readFileSync(join(to, "out"), "utf8"), "made\n");
  },
  "volumes of an image go with the sandbox": async (bench) => {
    const image = await prepare(bench, bench.need(`FROM ${BASE}\nVOLUME /data\n`));
    const volumes = () =>
      spawnSync(bench.engine, ["volume", "ls", "-q"], { encoding: "utf8" }).stdout.split("\n").filter(Boolean);
    const before = new Set(volumes());
    {
      await using box = await bench.open(image);
      await out(box, "echo x > /data/f");
      assert.ok(volumes().some((name) => !before.has(name)));
    }
    assert.deepEqual(volumes().filter((name) => !before.has(name)), []);
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
