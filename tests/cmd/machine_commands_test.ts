/** doctor, sandbox list, sandbox gc and list, over providers that answer as told. */
import { test } from "node:test";
import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import type { Lend } from "../../cmd/_sandboxes.ts";
import * as doctor from "../../cmd/doctor.ts";
import { listAgents, listSandboxes } from "../../cmd/list.ts";
import { durationMs, sandboxGc, sandboxList } from "../../cmd/sandbox.ts";
import { HarborError } from "../../lib/errors.ts";
import { thisOwner } from "../../lib/sandbox/owner.ts";
import type { Diagnosis, Leftover, OwnerFilter, SandboxProvider } from "../../lib/sandbox/provider.ts";
import { makeScratch, scratchRoot } from "../../lib/sandbox/scratch.ts";
import { systemClock } from "../../lib/runtime/clock.ts";
import { testContext } from "../support/context.ts";

const ABLE = {
  networks: ["public" as const],
  limits: "enforced" as const,
  users: "any" as const,
  build: true,
  gpu: false,
  version: "engine 1.2",
};
const good = (name: Diagnosis["name"]): Diagnosis => ({ name, usable: true, missing: [], capabilities: ABLE });
const bad = (name: Diagnosis["name"]): Diagnosis => ({
  name,
  usable: false,
  missing: [{ what: "no subuid range", fix: "usermod --add-subuids 100000-165535 $USER" }],
  capabilities: null,
});

/** Providers of which each has the given methods and no others. */
function lending(...given: (Partial<SandboxProvider> & { name: SandboxProvider["name"] })[]): Lend {
  return (_ctx, _lent, work) => work(given as unknown as SandboxProvider[]);
}
const OFFLINE = { json: false, offline: true, overrides: [], verbose: false };
const diagnosing = (...all: Diagnosis[]): Lend =>
  lending(...all.map((one) => ({ name: one.name, diagnose: () => Promise.resolve(one) })));

for (
  const [what, all, exit, last] of [
    ["docker is usable", [good("docker"), good("podman"), good("host")], 0, "--sandbox auto takes docker."],
    ["podman is usable", [bad("docker"), good("podman"), bad("host")], 0, "--sandbox auto takes podman."],
    [
      "no engine is",
      [bad("docker"), bad("podman"), good("namespace"), good("host")],
      0,
      "--sandbox auto takes namespace.",
    ],
    [
      "only host is",
      [bad("docker"), bad("podman"), good("host")],
      0,
      "--sandbox auto finds nothing to start images with; --sandbox host works, and is taken only when it is named.",
    ],
    ["nothing is", [bad("docker"), bad("podman"), bad("host")], 3, "No sandbox is usable: mend one of the above."],
  ] as const
) {
  test(`doctor exits ${exit} and says what auto takes when ${what}`, async () => {
    const { ctx, out } = testContext({ cwd: "/" });
    assert.equal(await doctor.run(OFFLINE, ctx, diagnosing(...all)), exit);
    assert.equal(out.at(-1), last);
  });
}

test("doctor names the missing piece and what mends it", async () => {
  const { ctx, out } = testContext({ cwd: "/" });
  await doctor.run(OFFLINE, ctx, diagnosing(bad("podman")));
  assert.ok(out.includes("podman  not usable"));
  assert.ok(out.includes("  missing: no subuid range"));
  assert.ok(out.includes("  fix:     usermod --add-subuids 100000-165535 $USER"));
});

test("doctor --json is one object of the documented shape", async () => {
  const { ctx, out } = testContext({ cwd: "/" });
  await doctor.run({ ...OFFLINE, json: true }, ctx, diagnosing(good("docker"), bad("podman")));
  assert.equal(out.length, 1);
  const said = JSON.parse(out[0]!);
  assert.deepEqual(Object.keys(said), ["version", "platform", "sandboxes", "machine", "registries"]);
  assert.deepEqual(said.sandboxes, [good("docker"), bad("podman")]);
});

test("doctor asks Docker Hub and every registry that is set up, unless told to stay offline", async () => {
  const asked: string[] = [];
  const ask = ((url: URL) => {
    asked.push(url.href);
    return url.host === "mirror.local"
      ? Promise.resolve(new Response("{}", { status: 401 }))
      : Promise.reject(new TypeError("no way there"));
  }) as typeof fetch;
  const options = {
    ...OFFLINE,
    offline: false,
    overrides: ["registries.docker.io.mirrors=['https://mirror.local']", "registries.a.b.insecure=true"],
  };
  const { ctx, out } = testContext({ cwd: "/", env: {} });
  await doctor.run(options, ctx, diagnosing(good("docker")), ask);
  assert.deepEqual(asked.sort(), ["http://a.b/v2/", "https://mirror.local/v2/"]);
  assert.ok(out.includes("  docker.io: answers"));
  assert.match(out.find((line) => line.includes("a.b:"))!, /^ {2}a\.b: no answer from http:\/\/a\.b \(.*no way there/);
  asked.length = 0;
  await doctor.run({ ...options, offline: true }, testContext({ cwd: "/" }).ctx, diagnosing(good("docker")), ask);
  await doctor.run(
    options,
    testContext({ cwd: "/", env: { GYM_HARBOR_OFFLINE: "1" } }).ctx,
    diagnosing(good("docker")),
    ask,
  );
  assert.deepEqual(asked, []);
});

test("doctor takes a provider that fails or hangs as a finding", async () => {
  const { ctx, out } = testContext({
    cwd: "/",
    clock: { ...systemClock, deadline: () => AbortSignal.abort(new Error("late")) },
  });
  const lend = lending(
    { name: "docker", diagnose: () => Promise.reject(new Error("killed by the deadline")) },
    { name: "host", diagnose: () => Promise.resolve(good("host")) },
  );
  assert.equal(await doctor.run({ ...OFFLINE, json: true }, ctx, lend), 0);
  const [docker] = JSON.parse(out[0]!).sandboxes;
  assert.equal(docker.usable, false);
  assert.match(docker.missing[0].what, /no answer within 60 s/);
});

const left = (over: Partial<Leftover> = {}): Leftover => ({
  id: "gym-harbor-abc",
  provider: "docker",
  owner: { run: "r1", host: "here", pid: 7, start: "5" },
  alive: false,
  ageMs: 125_400,
  ...over,
});

test("sandbox list --json gives the documented lines", async () => {
  const { ctx, out } = testContext();
  const lend = lending({ name: "docker", list: () => Promise.resolve([left(), left({ alive: undefined })]) });
  assert.equal(await sandboxList.run({ json: true }, ctx, lend), 0);
  assert.deepEqual(out.map((line) => JSON.parse(line)), [
    {
      id: "gym-harbor-abc",
      provider: "docker",
      run: "r1",
      owner: { host: "here", pid: 7, start: "5" },
      alive: false,
      age_s: 125,
    },
    {
      id: "gym-harbor-abc",
      provider: "docker",
      run: "r1",
      owner: { host: "here", pid: 7, start: "5" },
      alive: null,
      age_s: 125,
    },
  ]);
});

test("sandbox list shows columns, and says when there is nothing", async () => {
  const some = testContext();
  await sandboxList.run({ json: false }, some.ctx, lending({ name: "docker", list: () => Promise.resolve([left()]) }));
  assert.deepEqual(some.out, [
    "SANDBOX         PROVIDER  RUN  OWNER          AGE",
    "gym-harbor-abc  docker    r1   here:7 (dead)  2m",
  ]);
  const none = testContext();
  const nothing = lending({ name: "docker", list: () => Promise.resolve([]) });
  await sandboxList.run({ json: false, quiet: true }, none.ctx, nothing);
  assert.deepEqual(none.notes, []);
  await sandboxList.run({ json: false }, none.ctx, nothing);
  assert.deepEqual([none.out, none.notes], [[], ["no sandboxes of ours"]]);
});

test("sandbox list passes over an engine that is not there, by name", async () => {
  const { ctx, notes } = testContext();
  const absent = new HarborError("machine.lacks", "Cannot start podman: no such program");
  const lend = lending(
    { name: "podman", list: () => Promise.reject(absent) },
    { name: "docker", list: () => Promise.resolve([left()]) },
  );
  assert.equal(await sandboxList.run({ json: false }, ctx, lend), 0);
  assert.deepEqual(notes, ["podman was not looked at: Cannot start podman: no such program"]);
});

test("sandbox gc hands its filter on, prints what went and exits 1 for what did not", async () => {
  using temp = place();
  const filters: OwnerFilter[] = [];
  const lend = lending({
    name: "docker",
    sweep: (filter) => {
      filters.push(filter);
      return Promise.resolve({ removed: ["a"], failed: [{ id: "b", reason: "busy" }] });
    },
  });
  const { ctx, out, notes } = testContext({ env: temp.env });
  assert.equal(await sandboxGc.run(sandboxGc.parse(["--run", "r1", "--older-than", "2h"]), ctx, lend), 1);
  assert.deepEqual(filters, [{ run: "r1", olderThanMs: 7_200_000 }]);
  assert.deepEqual(out, ["removed a"]);
  assert.deepEqual(notes, ["could not remove b: busy"]);
});

test("sandbox gc removes temp folders of dead runs only", async () => {
  using temp = place();
  const living = makeScratch(temp.env, thisOwner("living00"));
  const dead = join(scratchRoot(temp.env), "dead0000");
  mkdirSync(dead);
  writeFileSync(
    join(dead, "owner.json"),
    JSON.stringify({ run: "dead0000", host: hostname(), pid: 999_999_999, start: "1" }),
  );
  const young = testContext({ env: temp.env });
  assert.equal(await sandboxGc.run({ json: false, olderThan: 60_000 }, young.ctx, lending()), 0);
  assert.deepEqual([young.out, young.notes], [[], ["nothing to remove"]]);
  const { ctx, out } = testContext({ env: temp.env });
  assert.equal(await sandboxGc.run({ json: false }, ctx, lending()), 0);
  assert.deepEqual(out, [`removed ${dead}`]);
  assert.ok(existsSync(living) && !existsSync(dead));
});

function place(): { env: { TMPDIR: string }; [Symbol.dispose](): void } {
  const TMPDIR = mkdtempSync(join(tmpdir(), "gh-gc-"));
  return { env: { TMPDIR }, [Symbol.dispose]: () => rmSync(TMPDIR, { recursive: true, force: true }) };
}

for (
  const [text, ms] of [
    ["90s", 90_000],
    ["30m", 1_800_000],
    ["2h", 7_200_000],
    ["1d", 86_400_000],
    ["1.5h", 5_400_000],
    ["10", 10_000],
    ["250ms", 250],
    ["", undefined],
    ["-1h", undefined],
    ["1w", undefined],
    ["1h30m", undefined],
  ] as const
) {
  test(`durationMs() reads '${text}' as ${ms}`, () => assert.equal(durationMs(text), ms));
}

for (
  const [argv, says] of [
    [["--older-than", "soon"], /--older-than: 'soon' is no time/],
    [["--run", "../x"], /--run: a run's id is letters and digits/],
    [["--jsn"], /unknown option '--jsn'/],
    [["now"], /too many arguments/],
  ] as const
) {
  test(`sandbox gc refuses ${argv.join(" ")}`, () => {
    assert.throws(() => sandboxGc.parse([...argv]), (error) => {
      assert.ok(error instanceof HarborError);
      assert.equal(error.code, "usage");
      assert.match(error.message, says);
      return true;
    });
  });
}

test("list agents and list sandboxes name what the options take", async () => {
  const { ctx, out } = testContext();
  await listAgents.run(listAgents.parse(["--json"]), ctx);
  await listSandboxes.run(listSandboxes.parse(["--json"]), ctx);
  const items = out.map((line) => JSON.parse(line) as { name: string; kind: string; about: string });
  assert.deepEqual(items.filter(({ kind }) => kind === "agent").map(({ name }) => name), ["harbor_oracle", "nop"]);
  assert.deepEqual(items.filter(({ kind }) => kind === "sandbox").map(({ name }) => name), [
    "auto",
    "docker",
    "podman",
    "namespace",
    "apptainer",
    "enroot",
    "host",
  ]);
  assert.ok(items.every(({ about }) => about.length > 10));
});
