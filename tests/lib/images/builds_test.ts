import { test } from "node:test";
import assert from "node:assert/strict";
import { chmodSync, existsSync, readdirSync, rmSync } from "node:fs";
import { HarborError } from "../../../lib/errors.ts";
import type { Event } from "../../../lib/events.ts";
import { type Build, collectBuilds } from "../../../lib/images/build_set.ts";
import { type BuildDeps, type Had, haveBuilds, INPUTS_LABEL } from "../../../lib/images/builds.ts";
import { buildOptions } from "../../../lib/images/options.ts";
import type { BuildPlan } from "../../../lib/images/plan.ts";
import { Records } from "../../../lib/images/record_files.ts";
import { systemClock as clock } from "../../../lib/runtime/clock.ts";
import { buildPlanOf } from "../../support/build_plans.ts";
import { FakeBuilder } from "../../support/fake_builder.ts";
import { TempFolder } from "../../support/tasks.ts";

const never = new AbortController().signal;

function depsOf(folder: TempFolder, builder: FakeBuilder, more: { options?: object; mayBuild?: boolean } = {}) {
  const events: Event[] = [];
  const emit = (event: Event) => void events.push(event);
  let asked = 0;
  const deps: BuildDeps = {
    clock,
    emit,
    options: buildOptions({ ...more.options }, {}),
    mayBuild: more.mayBuild ?? true,
    records: new Records(folder.path, { clock, emit }),
    present: (reference) => builder.has(reference),
    builder: () => (asked++, Promise.resolve(builder)),
    lockPath: (hash) => folder.join("locks", `build-${hash}.lock`),
    logFile: (name) => folder.join("builds", `${name}.log`),
    inlineFile: () => "/inline",
  };
  return Object.assign(deps, { events, asked: () => asked });
}

const buildsOf = (plans: readonly { taskId: string; builds: BuildPlan[] }[]): Build[] =>
  collectBuilds(plans, "linux/amd64").builds;

test("E7: equal contexts are built once, used again, and built again when a file's mode changed", async () => {
  using folder = new TempFolder("builds");
  const plans = () => ["a", "b"].map((id) => ({ taskId: id, builds: [buildPlanOf(folder, id, "h1")] }));
  const builder = new FakeBuilder();
  const first = await haveBuilds(buildsOf(plans()), depsOf(folder, builder), never);
  assert.equal((first.get("hb__h1") as Had).reference, "hb__h1");
  assert.equal(builder.requests.length, 1);

  const again = depsOf(folder, builder);
  const had = (await haveBuilds(buildsOf(plans()), again, never)).get("hb__h1") as Had;
  assert.deepEqual([had.fresh, had.record?.config.User, builder.requests.length, again.asked()], [
    false,
    "built",
    1,
    0,
  ]);
  assert.deepEqual((again.records.built.h1 as { tasks: string[] }).tasks, ["a", "b"]);

  for (const id of ["a", "b"]) chmodSync(folder.join(id, "environment", "a"), 0o755);
  await haveBuilds(buildsOf(plans()), depsOf(folder, builder), never);
  assert.equal(builder.requests.length, 2);
});

test("an image that was deleted behind our back is built again; where nothing may be built it is refused", async () => {
  using folder = new TempFolder("builds");
  const builder = new FakeBuilder();
  const builds = () => buildsOf([{ taskId: "a", builds: [buildPlanOf(folder, "a", "h1")] }]);
  await haveBuilds(builds(), depsOf(folder, builder), never);
  builder.store.clear();
  const refused = await haveBuilds(builds(), depsOf(folder, builder, { mayBuild: false }), never);
  assert.match((refused.get("hb__h1") as HarborError).message, /hb__h1 is not built: .*no longer on this machine/);
  await haveBuilds(builds(), depsOf(folder, builder), never);
  assert.equal(builder.requests.length, 2);
});

const locals: [string, { configDigest: string; label?: string }, boolean, "built" | "reused" | "noted"][] = [
  ["the recorded one", { configDigest: "recorded" }, true, "reused"],
  ["another engine's, of the same inputs", { configDigest: "other", label: "inputs" }, true, "reused"],
  ["another one", { configDigest: "other", label: "others" }, true, "built"],
  ["another one, and nothing may be built", { configDigest: "other" }, false, "noted"],
];
for (const [name, { configDigest, label }, mayBuild, outcome] of locals) {
  test(`what this machine has under the name of a local build: ${name}`, async () => {
    using folder = new TempFolder("builds");
    const builder = new FakeBuilder();
    const builds = buildsOf([{ taskId: "a", builds: [buildPlanOf(folder, "a", "h1")] }]);
    const first = (await haveBuilds(builds, depsOf(folder, builder), never)).get("hb__h1") as Had;
    const config = { User: "local", Labels: { [INPUTS_LABEL]: label === "inputs" ? builds[0]!.inputsDigest : label } };
    const digest = configDigest === "recorded" ? first.record!.configDigest! : configDigest;
    const deps = {
      ...depsOf(folder, builder, { mayBuild }),
      present: () => Promise.resolve({ configDigest: digest, config, platform: "linux/amd64", repoDigests: [] }),
    };
    const had = (await haveBuilds(builds, deps, never)).get("hb__h1") as Had;
    const got = had.note !== undefined ? "noted" : builder.requests.length === 2 ? "built" : "reused";
    assert.equal(got, outcome);
    assert.equal(had.record?.configDigest, outcome === "built" ? first.record?.configDigest : digest);
  });
}

test("builds.enabled=false leaves a task out whose image is not recorded, with the reason", async () => {
  using folder = new TempFolder("builds");
  const builds = buildsOf([{ taskId: "a", builds: [buildPlanOf(folder, "a", "h1")] }]);
  const deps = depsOf(folder, new FakeBuilder(), { options: { enabled: false }, mayBuild: false });
  const outcome = (await haveBuilds(builds, deps, never)).get("hb__h1") as HarborError;
  assert.equal(outcome.code, "task.unsupported");
  assert.equal(outcome.message, "hb__h1 is not built: nothing is recorded (builds.enabled=false)");
});

test("losing compose-images.json builds again", async () => {
  using folder = new TempFolder("builds");
  const builder = new FakeBuilder();
  const builds = () => buildsOf([{ taskId: "a", builds: [buildPlanOf(folder, "a", "h1")] }]);
  await haveBuilds(builds(), depsOf(folder, builder), never);
  rmSync(folder.join("compose-images.json"));
  await haveBuilds(builds(), depsOf(folder, builder), never);
  assert.equal(builder.requests.length, 2);
});

test("a failed build gives its tasks the reason, the others are built and recorded", async () => {
  using folder = new TempFolder("builds");
  const failure = new HarborError("image.failed", "image build failed (exit 1): no such file");
  const builder = new FakeBuilder({ fails: { hb__h1: failure } });
  const builds = buildsOf(["1", "2", "3"].map((n) => ({ taskId: n, builds: [buildPlanOf(folder, n, `h${n}`)] })));
  const deps = depsOf(folder, builder);
  const outcomes = await haveBuilds(builds, deps, never);
  assert.equal(outcomes.get("hb__h1"), failure);
  assert.deepEqual(Object.keys(deps.records.built).sort(), ["h2", "h3"]);
  assert.equal(readdirSync(folder.path).includes("locks"), false, "no lock and no folder of locks is left");
});

for (const [failureClass, stops] of [["disk", true], ["registry-limit", true], ["network", false]] as const) {
  test(`E16: a failure of class ${failureClass} ${stops ? "starts no further build" : "keeps nobody else"}`, async () => {
    using folder = new TempFolder("builds");
    const failure = new HarborError("image.failed", "the reason", { details: { class: failureClass } });
    const builder = new FakeBuilder({ fails: { hb__h1: failure } });
    const builds = buildsOf(["1", "2", "3"].map((n) => ({ taskId: n, builds: [buildPlanOf(folder, n, `h${n}`)] })));
    const outcomes = await haveBuilds(builds, depsOf(folder, builder, { options: { concurrency: 1 } }), never);
    assert.equal(builder.requests.length, stops ? 1 : 3);
    if (stops) {
      assert.match(
        (outcomes.get("hb__h3") as HarborError).message,
        /hb__h3 was not built, since hb__h1 failed: the reason/,
      );
    }
  });
}

test("builds run at most builds.concurrency at a time, the images of one context in turn and main first", async () => {
  using folder = new TempFolder("builds");
  const builder = new FakeBuilder({ during: () => new Promise((done) => setTimeout(done, 5)) });
  const of = (id: string, hash: string) => [
    buildPlanOf(folder, id, hash, {}, { service: "db", name: `hb__${hash}__db` }),
    buildPlanOf(folder, id, hash),
  ];
  const builds = buildsOf(["1", "2", "3", "4"].map((n) => ({ taskId: n, builds: of(n, `h${n}`) })));
  await haveBuilds(builds, depsOf(folder, builder, { options: { concurrency: 2 } }), never);
  assert.deepEqual([builder.requests.length, builder.mostRunning], [8, 2]);
  const names = builder.requests.map(({ name }) => name);
  assert.ok(names.indexOf("hb__h1") < names.indexOf("hb__h1__db"));
});

test("an interrupted prepare goes on at the next build: each is recorded as soon as it is done", async () => {
  using folder = new TempFolder("builds");
  const stop = new AbortController();
  const builder: FakeBuilder = new FakeBuilder({
    during: () => Promise.resolve(builder.requests.length === 3 && stop.abort(new HarborError("aborted", "enough"))),
  });
  const builds = () =>
    buildsOf(["1", "2", "3", "4", "5"].map((n) => ({ taskId: n, builds: [buildPlanOf(folder, n, `h${n}`)] })));
  const one = { options: { concurrency: 1 } };
  await assert.rejects(haveBuilds(builds(), depsOf(folder, builder, one), stop.signal), { code: "aborted" });
  assert.equal(builder.store.size, 2);
  await haveBuilds(builds(), depsOf(folder, builder, one), never);
  assert.equal(builder.requests.length, 3 + 3);
});

test("a run that pushes names images below its repository and starts them by digest", async () => {
  using folder = new TempFolder("builds");
  const builder = new FakeBuilder();
  const builds = buildsOf([{ taskId: "a", builds: [buildPlanOf(folder, "a", "abc")] }]);
  const deps = depsOf(folder, builder, { options: { repository: "r.io/x" } });
  const had = (await haveBuilds(builds, deps, never)).get("hb__abc") as Had;
  assert.match(had.reference, /^r\.io\/x\/hb__abc@sha256:/);
  assert.deepEqual([builder.requests[0]!.name, builder.requests[0]!.push], ["r.io/x/hb__abc", true]);
  assert.equal((deps.records.images["r.io/x/hb__abc"] as { image: string }).image, had.reference);
  const elsewhere = depsOf(folder, new FakeBuilder());
  assert.equal(((await haveBuilds(builds, elsewhere, never)).get("hb__abc") as Had).reference, had.reference);
});

test("a build's limit is the task's own, never above builds.timeout_s", async () => {
  using folder = new TempFolder("builds");
  const builder = new FakeBuilder();
  const builds = buildsOf([
    { taskId: "a", builds: [buildPlanOf(folder, "a", "h1", {}, { timeoutSec: 60 })] },
    { taskId: "b", builds: [buildPlanOf(folder, "b", "h1", {}, { timeoutSec: 90 })] },
    { taskId: "c", builds: [buildPlanOf(folder, "c", "h2", {}, { timeoutSec: 9000 })] },
  ]);
  await haveBuilds(builds, depsOf(folder, builder, { options: { timeout_s: 100 } }), never);
  assert.deepEqual(builder.requests.map(({ timeoutMs }) => timeoutMs).sort(), [100_000, 90_000]);
});

test("a dataset folder that cannot be written is said once, and the run has its images", async () => {
  using folder = new TempFolder("builds");
  const builder = new FakeBuilder();
  const deps = depsOf(folder, builder);
  const records = new Records("/proc/self", { clock, emit: deps.emit });
  const builds = buildsOf([{ taskId: "a", builds: [buildPlanOf(folder, "a", "h1")] }]);
  const outcomes = await haveBuilds(builds, { ...deps, records }, never);
  assert.equal((outcomes.get("hb__h1") as Had).reference, "hb__h1");
  const said = deps.events.filter((event) => event.kind === "note" && /not kept for the next run/.test(event.text));
  assert.equal(said.length, 1);
  assert.equal(existsSync(folder.join("compose-images.json")), false);
});
