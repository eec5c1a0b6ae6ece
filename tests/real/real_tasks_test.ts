/**
 * Whole public task folders, validated by the compiled program and held against what plain engine commands gave.
 *
 * Needs `GYM_HARBOR_DATA`, the engines, Debian's mirror and PyPI; takes about half an hour with cold images, so it is
 * `deno task test:real` and no part of CI. Narrow it: `REAL_ONLY='*hello*'`, `REAL_SANDBOX=docker,podman,namespace,host`,
 * `REAL_JOBS=2`. The base images (stand-ins made of Debian packages) are made where an engine lacks them, from tarballs
 * kept in `REAL_BASES`; `namespace` takes them from a registry that stands for Docker Hub (`REAL_MIRROR=http://…`), and
 * what that lacks from an engine into its own store (`REAL_STORE`, else a temp folder).
 *
 * Last, the tasks that need no network once built go through a bundle: without network, engine, home or a known user
 * they give the rewards and digests of before (`REAL_SANDBOX=bundle`).
 */
import assert from "node:assert/strict";
import { chmodSync, cpSync, mkdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import process from "node:process";
import { after, test } from "node:test";
import pLimit from "p-limit";
import picomatch from "picomatch";
import { looksLikeStackTrace, runCli } from "../support/cli.ts";
import { dataPath, missing, needing, needsRoot, type SandboxName, sandboxTest } from "../support/kit.ts";
import { nowhere } from "../support/site.ts";
import { rowOf, type RunFiles, TempFolder, validate } from "../support/tasks.ts";
import { basesOf, hasInMirror, importBases, makeBases } from "./bases.ts";
import { type Expected, isOfOfflineSet, isSingleShared, type Truth, waysOf } from "./truth.ts";

const ONE_TASK_MS = 20 * 60_000;

const folder = dataPath("real-tasks");
/** A registry that stands for Docker Hub. */
const MIRROR = process.env.REAL_MIRROR;
const results: {
  sandbox: SandboxName | "bundle";
  path: string;
  expected: string;
  got: string;
  ms: number;
  ok: boolean;
}[] = [];

if (folder === undefined) {
  needing("GYM_HARBOR_DATA names no folder with real-tasks/", "real tasks give the scores of the truth", () => {});
} else {
  const truths = readFileSync(join(folder, "truth.jsonl"), "utf8").trim().split("\n")
    .map((line) => JSON.parse(line) as Truth)
    .filter(isSingleShared)
    .filter((truth) => picomatch(process.env.REAL_ONLY ?? "**", { contains: true })(truth.path));
  const asked = process.env.REAL_SANDBOX ?? "docker,podman,namespace,host,bundle";
  const wanted = asked.split(",").filter((name) => name !== "bundle") as SandboxName[];
  const output = new TempFolder("real");
  after(() => output[Symbol.dispose]());
  const store = process.env.REAL_STORE ?? output.join("store");
  const pool = pLimit(Number(process.env.REAL_JOBS ?? 2));
  // A copy: prepare records images beside the tasks.
  const copy = (truth: Truth, to: string): string => {
    cpSync(join(folder, truth.path), to, { recursive: true, verbatimSymlinks: true, preserveTimestamps: true });
    return to;
  };

  for (const sandbox of wanted) {
    const chosen = truths.filter((truth) => sandbox !== "host" || truth.host_ok === true);
    if (sandbox !== "host") {
      sandboxTest(sandbox, "the base images are there", () => provideBases(sandbox, folder, chosen, store));
    }
    const ways = chosen.flatMap((truth) => waysOf(truth).map((way) => ({ ...way, truth })));
    let started: Map<string, Promise<RunFiles>> | undefined;
    // All runs queue at the first test, so that two work at a time while the tests wait for them in order.
    const runOf = (name: string): Promise<RunFiles> => {
      started ??= new Map(ways.map((way) => [way.name, pool(() => validateOne(way))]));
      return started.get(name)!;
    };
    const validateOne = ({ name, truth, args }: (typeof ways)[number]): Promise<RunFiles> =>
      validate(
        copy(truth, output.join("tasks", sandbox, ...(args.length === 0 ? [] : ["forced"]), truth.path)),
        output.join(`${sandbox}-${name.replaceAll(/[/ ]/g, "__")}`, "rollouts.jsonl"),
        ["--sandbox", sandbox, ...(sandbox === "namespace" ? storeArgs(store) : []), ...args],
        { timeoutMs: ONE_TASK_MS, env: placeholders(join(folder, truth.path, "task.toml")) },
      );
    for (const { name, truth, expected } of ways) {
      sandboxTest(sandbox, name, async () => {
        const run = await runOf(name);
        const got = describeRun(run, truth);
        const entry = { sandbox, path: name, expected: describe(expected), got, ms: run.ms, ok: false };
        results.push(entry);
        check(run, truth, expected);
        entry.ok = true;
      });
    }
  }
  const carried = truths.filter(isOfOfflineSet);
  if (asked.split(",").includes("bundle") && carried.length > 0) {
    needing(
      needsRoot() ?? missing("namespace"),
      `${carried.length} tasks from a bundle, where there is no network, engine, home or known user, give the same`,
      async () => {
        await provideBases("namespace", folder, carried, store);
        const dataset = output.join("offline");
        for (const truth of carried) copy(truth, join(dataset, basename(truth.path)));
        await fromBundle(carried, dataset, store, output);
      },
    );
  }
  after(printTable);
}

/** Makes or takes what the tasks start from: into the engine, or into our own store beside what the mirror has. */
async function provideBases(on: SandboxName, folder: string, truths: readonly Truth[], store: string): Promise<void> {
  const bases = basesOf(folder, truths);
  if (on === "docker" || on === "podman") return makeBases(on, bases);
  const engine = missing("docker") === null ? "docker" : "podman";
  makeBases(engine, bases); // for its builds, too
  const names: string[] = [];
  for (const name of bases.keys()) if (MIRROR === undefined || !await hasInMirror(MIRROR, name)) names.push(name);
  await importBases(engine, names, store);
}

const storeArgs = (store: string): string[] => [
  "--image-store",
  store,
  ...(MIRROR === undefined ? [] : [`++registries.docker.io.mirrors=[${MIRROR}]`]),
];

/** Runs `dataset` here and from its bundle where there is nothing, and holds both against the truth and each other. */
async function fromBundle(truths: readonly Truth[], dataset: string, store: string, output: TempFolder): Promise<void> {
  const env = Object.assign({}, ...truths.map(({ path }) => placeholders(join(dataset, basename(path), "task.toml"))));
  const limit = { timeoutMs: truths.length * ONE_TASK_MS, env };
  const args = ["--sandbox", "namespace", ...storeArgs(store)];
  const here = await validate(dataset, output.join("here", "rollouts.jsonl"), args, limit);
  const bundle = output.join("bundle");
  const exported = await runCli(["bundle", "export", dataset, "--out", bundle, "--bake", ...args], limit);
  assert.equal(exported.code, 0, `${exported.stdout}\n${exported.stderr}`);
  const work = output.join("work");
  mkdirSync(work);
  chmodSync(work, 0o777);
  const away = nowhere(bundle, work);
  const there = await validate(
    bundle,
    join(work, "there", "rollouts.jsonl"),
    ["--offline", "--sandbox", "namespace"],
    { ...away, ...limit, env: { ...away.env, ...env } },
  );
  for (const truth of truths) {
    const id = basename(truth.path);
    const [online, offline] = [here, there].map((run) => rowOf(run.rows, id));
    // Nobody knows the user there, so that he has one id: what becomes another user cannot work, and is told as such.
    const needsIds = truth.features.includes("useradd");
    const told = JSON.stringify([there.skipped[id], offline, rowOf(there.failures, id)]);
    const asExpected = needsIds
      ? /only one id can be had here|users: one id only/.test(told)
      : offline?.reward === 1 && online?._ng_digest === offline._ng_digest;
    results.push({
      sandbox: "bundle",
      path: truth.path,
      expected: needsIds ? "1, there told to want more ids" : "1",
      got: `${describeRun(here, truth)}, there ${describeRun(there, truth)}`,
      ms: 0,
      ok: online?.reward === 1 && asExpected,
    });
  }
  const told = `${there.stdout}\n${there.stderr.slice(-5000)}`;
  const differs = results.filter(({ sandbox, ok }) => sandbox === "bundle" && !ok);
  assert.deepEqual(differs, [], told);
  assert.equal(there.summary?.dataset.digest, here.summary?.dataset.digest, told);
}

/** Fails unless the run's files and exit code say what is expected. */
function check(run: RunFiles, truth: Truth, expected: Expected): void {
  const told = `exit ${run.code}\n${run.stdout}\n${run.stderr.slice(-3000)}`;
  const id = truth.path.split("/").pop()!;
  const row = rowOf(run.rows, id);
  const failure = rowOf(run.failures, id);
  assert.ok(!looksLikeStackTrace(run.stderr), told);
  switch (expected.kind) {
    case "scored":
      assert.ok(row !== undefined, told);
      assert.equal(row.mask_sample, false, told);
      assert.equal(row.reward, expected.reward, told);
      if (expected.rewards !== null) assert.deepEqual(row.rewards, expected.rewards, told);
      assert.equal(run.code, expected.reward >= 1 ? 0 : 1, told);
      return;
    case "no-reward":
      assert.ok(row !== undefined, told);
      assert.equal(row.mask_sample, false, told);
      assert.equal(row.reward, 0, told);
      assert.match(String(row.failure_kind), /^harbor:(missing_reward|invalid_reward)$/, told);
      assert.ok(row.failure_reason, told);
      assert.equal(run.code, 1, told);
      return;
    case "build-fails":
      assert.equal(row, undefined, told);
      assert.ok(failure !== undefined, told);
      assert.equal(failure._ng_failure_stage, "seed", told);
      assert.equal(run.code, 1, told);
      return;
    case "not-built":
      assert.equal(row, undefined, told);
      assert.match(JSON.stringify(run.skipped), new RegExp(`not in this version: .*${expected.feature}`), told);
      assert.equal(run.code, 1, told);
  }
}

/** A value for every `${NAME}` without default that the task wants from this machine: the truth was made without keys. */
function placeholders(tomlPath: string): Record<string, string> {
  const names = [...readFileSync(tomlPath, "utf8").matchAll(/"\$\{(\w+)\}"/g)].map((match) => match[1]!);
  return Object.fromEntries(names.filter((name) => process.env[name] === undefined).map((name) => [name, "unset"]));
}

function describe(expected: Expected): string {
  switch (expected.kind) {
    case "scored":
      return String(expected.reward);
    case "no-reward":
      return "0, with a reason";
    case "build-fails":
      return "build fails";
    case "not-built":
      return `not built: ${expected.feature}`;
  }
}

function describeRun(run: RunFiles, truth: Truth): string {
  const id = truth.path.split("/").pop()!;
  const row = rowOf(run.rows, id);
  if (row !== undefined) {
    return row.mask_sample ? `masked ${row.failure_kind}` : `${row.reward} ${row.failure_kind ?? ""}`;
  }
  const failure = rowOf(run.failures, id);
  if (failure !== undefined) return `failed: ${String(failure._ng_failure_message).slice(0, 60)}`;
  return Object.values(run.skipped)[0]?.slice(0, 60) ?? `nothing, exit ${run.code}`;
}

function printTable(): void {
  const width = Math.max(10, ...results.map((one) => one.path.length));
  const lines = results.map((one) =>
    [
      one.ok ? "ok  " : "FAIL",
      one.sandbox.padEnd(9),
      one.path.padEnd(width),
      `${(one.ms / 1000).toFixed(1)} s`.padStart(8),
      ` expected ${one.expected}; got ${one.got}`,
    ].join(" ")
  );
  const good = results.filter((one) => one.ok).length;
  console.log(`\n${lines.join("\n")}\n${good} of ${results.length} as the truth says`);
}

test("the truth's expectations cover every kind", () => {
  const truth: Truth = {
    path: "a/b",
    base: null,
    base_kind: null,
    build: "ok",
    reward: { reward: 1 },
    score: 1,
    nop_reward: null,
    host_ok: true,
    offline: true,
    features: [],
  };
  const kinds = (over: Partial<Truth>) => waysOf({ ...truth, ...over }).map(({ expected }) => expected.kind);
  assert.deepEqual(kinds({}), ["scored"]);
  assert.deepEqual(kinds({ score: null }), ["no-reward"]);
  assert.deepEqual(kinds({ build: "fail" }), ["build-fails"]);
  assert.deepEqual(kinds({ features: ["phase-network"] }), ["not-built"]);
  assert.deepEqual(kinds({ features: ["heredoc-RUN"] }), ["scored"]);
  assert.deepEqual(kinds({ features: ["docker_image+Dockerfile"] }), ["build-fails", "scored"]);
});
