import assert from "node:assert/strict";
import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { type GroupRequest, resolveServices, ServiceFailed, startGroup } from "../../../lib/compose/mod.ts";
import { HarborError } from "../../../lib/errors.ts";
import { type Clock, systemClock } from "../../../lib/runtime/clock.ts";
import { Gate } from "../../../lib/runtime/pool.ts";
import type { SandboxSpec } from "../../../lib/sandbox/provider.ts";
import { imageWith, planCase } from "../../support/compose.ts";
import { type Behaviour, FakeGroup } from "../../support/fake_group.ts";
import { leapingClock } from "../../support/leaping_clock.ts";
import { type TempTree, writeTree } from "../../support/tree.ts";

const MAIN = { owner: { run: "r" }, episode: "0-0", network: "public", ttlMs: 5000 } as SandboxSpec;

interface Case {
  file: string;
  services?: Record<string, Behaviour>;
  clock?: Clock;
  signal?: AbortSignal;
}

function begin(
  { file, services = {}, clock = leapingClock(), signal = new AbortController().signal }: Case,
  tree: TempTree,
) {
  const plan = planCase(file);
  const images = Object.fromEntries(plan.services.map(({ name }) => [name, imageWith({ Cmd: ["serve"] })]));
  const fake = new FakeGroup(services);
  const request: GroupRequest = {
    group: resolveServices(plan, images),
    main: MAIN,
    sandboxEnv: { EVERYWHERE: "1" },
    mounted: tree.at("mounted"),
    scratch: tree.at("scratch"),
    logs: tree.at("logs"),
  };
  const started = startGroup(request, { openGroup: fake.open, clock, gate: new Gate(2) }, signal);
  started.catch(() => {});
  return { fake, started };
}

const CHAIN = `services:
  main: {depends_on: {api: {condition: service_healthy}}}
  api:
    image: x
    depends_on: {db: {condition: service_healthy}, job: {condition: service_completed_successfully}}
    healthcheck: {test: [CMD, ask-api], interval: 1s, retries: 2}
  db: {image: x, healthcheck: {test: ask-db, interval: 1s, retries: 2}}
  job: {image: x, depends_on: [db]}
`;

test("startGroup() starts everyone in order, each once those it waits for are as far as it wants them", async () => {
  using tree = writeTree({});
  const { fake, started } = begin({
    file: CHAIN,
    services: { db: { probes: [1, 0] }, job: { ends: Promise.resolve({ exitCode: 0 }) } },
  }, tree);
  const group = await started;
  assert.deepEqual(fake.log.filter((line) => line.startsWith("start")), [
    "start db",
    "start job",
    "start api",
    "start main",
  ]);
  const at = (line: string) => fake.log.lastIndexOf(line);
  assert.ok(at("probe db: /bin/sh -c ask-db") < at("start api"), fake.log.join("\n"));
  assert.ok(at("probe api: ask-api") < at("start main"), fake.log.join("\n"));
  assert.deepEqual(fake.opened, {
    owner: MAIN.owner,
    episode: "0-0",
    network: "public",
    members: ["db", "job", "api", "main"].map((service) => ({ service, aliases: [] })),
    volumes: [],
  });
  assert.deepEqual([...group.services.keys()], ["db", "job", "api"]);
  await group[Symbol.asyncDispose]();
  assert.equal(fake.log.at(-1), "dispose");
});

test("startGroup() gives a sidecar its argv, and environment above that of every sandbox", async () => {
  using tree = writeTree({});
  const { fake, started } = begin({
    file:
      "services:\n  web: {image: x, command: [run], environment: {A: 1}, user: u, cpus: 1}\n  lone: {image: x, network_mode: none}\n",
  }, tree);
  await started;
  const { argv, env, user, limits, ttlMs } = fake.specs.get("web")!;
  assert.deepEqual({ argv, env, user, limits, ttlMs }, {
    argv: ["run"],
    env: { EVERYWHERE: "1", A: "1" },
    user: "u",
    limits: { cpus: 1 },
    ttlMs: 5000,
  });
  assert.deepEqual(
    fake.opened!.members.map(({ service }) => service),
    ["web", "main"],
    "who has no network has no address",
  );
});

test("startGroup() opens main without a network where the file gives it none, in a group that has one", async () => {
  using tree = writeTree({});
  const { fake, started } = begin({ file: "services: {main: {network_mode: none}, web: {image: x}}" }, tree);
  await started;
  assert.deepEqual([fake.opened!.network, fake.main!.spec.network, fake.main!.member.noNetwork], [
    "public",
    "no-network",
    true,
  ]);
});

test("startGroup() waits at the end for the health of those nobody waits for", async () => {
  using tree = writeTree({});
  const file = "services:\n  web: {image: x, healthcheck: {test: ask, interval: 1s}}\n";
  const { fake, started } = begin({ file, services: { web: { probes: [1, 1, 0] } } }, tree);
  await started;
  assert.equal(fake.log.filter((line) => line.startsWith("probe web")).length, 3);
});

test("startGroup() ends everything when a service does not come up, and says why with the end of its output", async () => {
  const rows: [what: string, given: Omit<Case, "clock">, message: RegExp][] = [
    [
      "unhealthy",
      { file: CHAIN, services: { db: { probes: [3], output: "db: no space\n" } } },
      /^service 'db' failed its healthcheck 2 times: exit 3: no answer: db: no space$/,
    ],
    [
      "ends before it is healthy",
      { file: CHAIN, services: { db: { probes: [3], ends: Promise.resolve({ exitCode: 1 }), output: "boom" } } },
      /^service 'db' exited with 1 before it was healthy: boom$/,
    ],
    [
      "a job that fails",
      { file: CHAIN, services: { job: { ends: Promise.resolve({ exitCode: 4 }), output: "x".repeat(9000) } } },
      /^service 'job' exited with 4, and 'api' waits for its good end: x{4096}$/,
    ],
    [
      "a job whose end is not known",
      { file: CHAIN, services: { job: { ends: Promise.resolve({ exitCode: null }) } } },
      /^service 'job' ended, and 'api' waits for its good end$/,
    ],
  ];
  for (const [what, given, message] of rows) {
    using tree = writeTree({});
    const { fake, started } = begin(given, tree);
    await assert.rejects(started, (error) => {
      assert.ok(error instanceof ServiceFailed, `${what}: ${error}`);
      assert.match(error.message, message, what);
      return true;
    });
    assert.equal(fake.log.at(-1), "dispose", what);
    assert.equal(fake.log.includes("start main"), false, what);
    assert.ok(existsSync(tree.at("logs/db.log")), `${what}: the logs are kept`);
  }
});

test("startGroup() names the service that an engine cannot start", async () => {
  using tree = writeTree({});
  const refuses = new HarborError("sandbox.failed", "no such file: /entry", { hint: "look" });
  const { fake, started } = begin({ file: "services: {web: {image: x}}", services: { web: { refuses } } }, tree);
  await assert.rejects(started, (error) => {
    assert.ok(error instanceof HarborError);
    assert.deepEqual([error.code, error.message, error.hint], [
      "sandbox.failed",
      "service 'web': no such file: /entry",
      "look",
    ]);
    return true;
  });
  assert.deepEqual(fake.log, ["open", "start web", "dispose"]);
});

test("startGroup() gives up after its limit and says what it waited for", async () => {
  using tree = writeTree({});
  const limits: number[] = [];
  const gone = new AbortController();
  const clock: Clock = {
    ...systemClock,
    deadline(ms, parent) {
      limits.push(ms);
      return AbortSignal.any([gone.signal, parent!]);
    },
  };
  const { fake, started } = begin({ file: CHAIN, clock }, tree); // the job never ends
  setTimeout(() => gone.abort(new Error("time")), 20);
  await assert.rejects(
    started,
    /^ServiceFailed: the group did not start within 1200 s \(waiting until 'job' has ended: 'api' waits for it\)$/,
  );
  assert.deepEqual(limits, [1_200_000]);
  assert.equal(fake.log.at(-1), "dispose");
});

test("startGroup() ends what it began when the run is stopped", async () => {
  using tree = writeTree({});
  const stop = new AbortController();
  const { fake, started } = begin({ file: CHAIN, signal: stop.signal, clock: systemClock }, tree);
  setTimeout(() => stop.abort(new Error("stopped by a person")), 20);
  await assert.rejects(started, /stopped by a person/);
  assert.equal(fake.log.at(-1), "dispose");
});

test("startGroup() mounts copies: shared when read-only, the episode's own when not", async () => {
  using tree = writeTree({
    "mounted/environment/seed.json": "{}",
    "mounted/environment/data/a": { text: "a", mode: "600" },
  });
  const file =
    "services:\n  web:\n    image: x\n    volumes: ['./seed.json:/s:ro', './data:/d', v:/v, /cache]\nvolumes: {v: }\n";
  const { fake, started } = begin({ file }, tree);
  const group = await started;
  const [seed, data, ...others] = fake.specs.get("web")!.mounts;
  assert.deepEqual(seed, {
    kind: "bind",
    source: tree.at("mounted/environment/seed.json"),
    target: "/s",
    readOnly: true,
  });
  assert.ok(data?.kind === "bind" && data.source.startsWith(tree.at("scratch")));
  assert.equal((statSync(`${data.source}/a`).mode & 0o777).toString(8), "666", "any user of a service may write it");
  writeFileSync(`${data.source}/a`, "changed");
  assert.equal(readFileSync(tree.at("mounted/environment/data/a"), "utf8"), "a");
  assert.deepEqual(others.map(({ kind }) => kind), ["volume", "scratch"]);
  await group[Symbol.asyncDispose]();
  assert.equal(existsSync(tree.at("scratch")), false);
});

test("StartedGroup tells at the end who died meanwhile, and keeps everyone's output", async () => {
  using tree = writeTree({});
  const { started } = begin({
    file: CHAIN.replace("  job:", "  idle: {image: x}\n  other: {image: x}\n  job:"),
    services: {
      job: { ends: Promise.resolve({ exitCode: 0 }), state: { state: "ended", exitCode: 0 }, output: "done\n" },
      db: { state: { state: "ended", exitCode: 137 }, output: "killed\n" },
      idle: { state: { state: "ended", exitCode: 0 } },
      other: { state: { state: "ended", exitCode: null } },
    },
  }, tree);
  const group = await started;
  assert.deepEqual((await group.lastLook(tree.at("services"))).sort(), [
    "service 'db' ended during the episode with exit 137",
    "service 'idle' ended during the episode with exit 0",
    "service 'other' ended during the episode",
  ]);
  assert.deepEqual(["db", "job"].map((name) => readFileSync(tree.at(`services/${name}.log`), "utf8")), [
    "killed\n",
    "done\n",
  ]);
});
