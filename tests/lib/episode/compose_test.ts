import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { boundPaths, resolveServices } from "../../../lib/compose/mod.ts";
import { TaskCopies } from "../../../lib/episode/copies.ts";
import { runEpisode } from "../../../lib/episode/run.ts";
import type { FailureRow, ResultRow } from "../../../lib/rollouts/schema.ts";
import type { CollectHook, Task } from "../../../lib/task/task.ts";
import { imageWith, planCase } from "../../support/compose.ts";
import { DIGEST, episodeDeps, planOf } from "../../support/episode.ts";
import { type Behaviour, FakeGroup } from "../../support/fake_group.ts";
import { type FakeOptions, FakeProvider, PASS } from "../../support/fake_provider.ts";
import { plainTask } from "../../support/loaded_task.ts";
import { TempFolder } from "../../support/tasks.ts";

interface Case extends FakeOptions {
  file: string;
  services?: Record<string, Behaviour>;
  hostEnv?: Record<string, string>;
  hooks?: CollectHook[];
  environment?: Partial<Task["environment"]>;
  user?: string;
}

async function run(given: Case) {
  const folder = new TempFolder("compose-episode");
  const provider = new FakeProvider({ answers: PASS, ...given });
  const group = new FakeGroup(given.services, (spec, signal) => provider.open(spec, signal));
  const plan = planCase({ file: given.file, hostEnv: given.hostEnv ?? {}, files: { "environment/seed.json": "{}" } });
  const images = Object.fromEntries(plan.services.map(({ name }) => [name, imageWith({ Cmd: ["serve"] })]));
  const start = { plan, group: resolveServices(plan, images) };
  const deps = {
    ...episodeDeps(provider, folder.path, { hostEnv: given.hostEnv ?? {} }),
    provider: Object.assign(provider, { openGroup: group.open }),
    composeOf: () => start,
    copies: new TaskCopies({
      scratch: folder.join("scratch"),
      digestOf: () => Promise.resolve(DIGEST),
      ignored: () => () => false,
      mounted: () => boundPaths(plan.services),
      withSolution: true,
    }),
  };
  const loaded = plainTask(folder.join("data"), "hello", {}, { "environment/seed.json": '{"n": 1}' });
  const task = {
    ...loaded,
    environment: { ...loaded.environment, ...given.environment },
    agent: { ...loaded.agent, ...(given.user && { user: given.user }) },
    verifier: { ...loaded.verifier, collect: given.hooks ?? [] },
  };
  const outcome = await runEpisode(planOf(task), deps, new AbortController().signal);
  return { outcome, provider, group, folder };
}

const SIDECAR = "services:\n  main: {depends_on: [web]}\n  web: {image: x}\n";

test("runEpisode() opens a group for a Compose task, grades in main, and keeps the sidecars' output", async () => {
  const { outcome, provider, group, folder } = await run({ file: SIDECAR, services: { web: { output: "hello\n" } } });
  using _ = folder;
  assert.equal(outcome.kind, "result", JSON.stringify(outcome.row));
  const row = outcome.row as ResultRow;
  assert.equal(row.reward, 1);
  assert.deepEqual(group.log, ["open", "start web", "start main", "dispose"]);
  assert.deepEqual(provider.log, ["open 0-0", "oracle 0-0", "verifier 0-0", "close 0-0"]);
  assert.equal(readFileSync(join(row.verifier_logs_dir!, "services/web.log"), "utf8"), "hello\n");
  assert.deepEqual(row.sandbox.notes, []);
  assert.deepEqual(readdirSync(folder.join("scratch")), [], "nothing staged is left");
});

test("runEpisode() gives main what the file says, below what task.toml says", async () => {
  const keys = "{working_dir: /from-file, user: filer, environment: {A: file, B: file}, cpus: 3, mem_limit: 1g}";
  const file = `services: {main: ${keys}, web: {image: x}}`;
  const { provider, folder } = await run({ file });
  using _ = folder;
  const [spec] = provider.specs;
  assert.deepEqual(
    {
      workdir: spec!.workdir,
      user: spec!.user,
      env: spec!.env,
      limits: { cpus: spec!.limits.cpus, memoryMb: spec!.limits.memoryMb },
    },
    { workdir: "/from-file", user: "filer", env: { A: "file", B: "file" }, limits: { cpus: 3, memoryMb: 1024 } },
  );
  assert.equal(provider.commands.find(({ purpose }) => purpose === "verifier")!.user, "filer");
  const told = await run({ file, environment: { env: { A: "toml" }, workdir: "/from-toml" }, user: "toml" });
  using _told = told.folder;
  const [other] = told.provider.specs;
  assert.deepEqual([other!.workdir, other!.user, other!.env], ["/from-toml", "toml", { A: "toml", B: "file" }]);
});

test("runEpisode() opens a plain sandbox for a file that asks for nothing beyond main", async () => {
  const { outcome, provider, group, folder } = await run({
    file: "services: {main: {working_dir: /app, network_mode: none, command: python app.py, healthcheck: {test: ask}}}",
  });
  using _ = folder;
  assert.equal(outcome.kind, "result", JSON.stringify(outcome.row));
  assert.deepEqual(group.log, []);
  assert.equal(provider.specs[0]!.network, "no-network");
  assert.deepEqual(provider.log, ["open 0-0", "spawn 0-0", "server 0-0", "oracle 0-0", "verifier 0-0", "close 0-0"]);
  const probe = provider.commands.find(({ purpose }) => purpose === "server")!;
  assert.deepEqual(probe.run, { argv: ["/bin/sh", "-c", "ask"] });
});

test("runEpisode() fails at seed with the end of a service's output, its log kept, its secrets out of both", async () => {
  const { outcome, group, provider, folder } = await run({
    file:
      "services:\n  web: {image: x, environment: {K: $MY_KEY}, healthcheck: {test: ask, interval: 1ms, retries: 1}}\n",
    hostEnv: { MY_KEY: "very-secret" },
    services: { web: { probes: [1], output: "started with very-secret\n" } },
  });
  using _ = folder;
  assert.equal(outcome.kind, "failure");
  const row = outcome.row as FailureRow;
  assert.equal(
    row._ng_failure_message,
    "Could not set up sandbox for 'hello': service 'web' failed its healthcheck 1 times: exit 1: no answer: started with [MY_KEY]",
  );
  assert.deepEqual([row._ng_failure_stage, row._ng_failure_terminal, row.failure_kind], ["seed", false, undefined]);
  assert.deepEqual([group.log.at(-1), provider.open_], ["dispose", 0]);
  const [session] = readdirSync(folder.join("out", "verifier"));
  assert.equal(
    readFileSync(folder.join("out", "verifier", session!, "services", "web.log"), "utf8"),
    "started with [MY_KEY]\n",
  );
});

test("runEpisode() runs a hook in the sidecar that it names, and notes one that fails or has no service", async () => {
  const hook = (service: string, command: string): CollectHook => ({ service, command, timeout_sec: 5 });
  const { outcome, group, folder } = await run({
    file: SIDECAR,
    hooks: [hook("web", "dump > /logs/verifier/x"), hook("gone", "true")],
    services: { web: { hook: { exitCode: 3, stderr: "no dump\n" } } },
  });
  using _ = folder;
  assert.ok(group.log.includes("hook web: sh -c dump > /logs/verifier/x"), group.log.join("\n"));
  assert.deepEqual((outcome.row as ResultRow).sandbox.notes, [
    "[[verifier.collect]] 'dump > /logs/verifier/x' in web exited with 3: no dump\n",
    "[[verifier.collect]] 'true' in gone: there is no service gone",
  ]);
});

test("runEpisode() tells of a sidecar that died, and of what the file asked for in vain", async () => {
  const { outcome, folder } = await run({
    file: "services:\n  web: {image: x, restart: always}\n",
    services: { web: { state: { state: "ended", exitCode: 1 } } },
  });
  using _ = folder;
  assert.deepEqual((outcome.row as ResultRow).sandbox.notes, [
    "service 'web': restart 'always' is left out: a service that ends stays ended, and its row says so",
    "service 'web' ended during the episode with exit 1",
  ]);
});

test("runEpisode() keeps the sidecars' output of an episode that fails later", async () => {
  const { outcome, folder } = await run({
    file: SIDECAR,
    services: { web: { output: "last words\n" } },
    answers: { ...PASS, oracle: { throws: new TypeError("a bug") } },
  });
  using _ = folder;
  assert.equal(outcome.kind, "failure");
  const [session] = readdirSync(folder.join("out", "verifier"));
  assert.ok(existsSync(folder.join("out", "verifier", session!, "services", "web.log")));
});

test("runEpisode() mounts what was planned, not what lies in the folder later", async () => {
  const { group, folder } = await run({ file: "services:\n  web: {image: x, volumes: ['./seed.json:/s:ro']}\n" });
  using _ = folder;
  const [mount] = group.specs.get("web")!.mounts;
  assert.ok(
    mount?.kind === "bind" && mount.source.startsWith(folder.join("scratch", "task-0-")),
    JSON.stringify(mount),
  );
});
