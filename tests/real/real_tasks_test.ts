/**
 * Whole public task folders, validated by the compiled program and held against what plain engine commands gave.
 *
 * Needs `GYM_HARBOR_DATA`, the engines, Debian's mirror and PyPI; takes about half an hour with cold images, so it is
 * `deno task test:real` and no part of CI. Narrow it: `REAL_ONLY='*hello*'`, `REAL_SANDBOX=docker,podman,host`,
 * `REAL_JOBS=2`. The base images (stand-ins made of Debian packages) are made where an engine lacks them, from tarballs
 * kept in `REAL_BASES`.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { cpSync, existsSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { after, test } from "node:test";
import pLimit from "p-limit";
import picomatch from "picomatch";
import { looksLikeStackTrace } from "../support/cli.ts";
import { dataPath, needing, type SandboxName, sandboxTest } from "../support/kit.ts";
import { rowOf, type RunFiles, TempFolder, validate } from "../support/tasks.ts";
import { type Expected, expectedOf, isSingleShared, type Truth } from "./truth.ts";

const ONE_TASK_MS = 20 * 60_000;

const folder = dataPath("real-tasks");
const results: { sandbox: SandboxName; path: string; expected: string; got: string; ms: number; ok: boolean }[] = [];

if (folder === undefined) {
  needing("GYM_HARBOR_DATA names no folder with real-tasks/", "real tasks give the scores of the truth", () => {});
} else {
  const truths = readFileSync(join(folder, "truth.jsonl"), "utf8").trim().split("\n")
    .map((line) => JSON.parse(line) as Truth)
    .filter(isSingleShared)
    .filter((truth) => picomatch(process.env.REAL_ONLY ?? "**", { contains: true })(truth.path));
  const wanted = (process.env.REAL_SANDBOX ?? "docker,podman,host").split(",") as SandboxName[];
  const output = new TempFolder("real");
  after(() => output[Symbol.dispose]());
  const pool = pLimit(Number(process.env.REAL_JOBS ?? 2));

  for (const sandbox of wanted) {
    const chosen = truths.filter((truth) => sandbox !== "host" || truth.host_ok === true);
    if (sandbox !== "host") {
      sandboxTest(sandbox, "the base images are there", () => makeBases(folder, sandbox, chosen));
    }
    let started: Map<string, Promise<RunFiles>> | undefined;
    // All runs queue at the first test, so that two work at a time while the tests wait for them in order.
    const runOf = (truth: Truth): Promise<RunFiles> => {
      started ??= new Map(chosen.map((one) => [one.path, pool(() => validateOne(one, sandbox))]));
      return started.get(truth.path)!;
    };
    // A copy: prepare records images beside the tasks.
    const copied = (truth: Truth, on: SandboxName): string => {
      const to = output.join("tasks", on, truth.path);
      cpSync(join(folder, truth.path), to, { recursive: true, verbatimSymlinks: true, preserveTimestamps: true });
      return to;
    };
    const validateOne = (truth: Truth, on: SandboxName): Promise<RunFiles> =>
      validate(
        copied(truth, on),
        output.join(`${on}-${truth.path.replaceAll("/", "__")}`, "rollouts.jsonl"),
        ["--sandbox", on],
        { timeoutMs: ONE_TASK_MS, env: placeholders(join(folder, truth.path, "task.toml")) },
      );
    for (const truth of chosen) {
      sandboxTest(sandbox, truth.path, async () => {
        const expected = expectedOf(truth, sandbox);
        const run = await runOf(truth);
        const got = describeRun(run, truth);
        const entry = { sandbox, path: truth.path, expected: describe(expected), got, ms: run.ms, ok: false };
        results.push(entry);
        check(run, truth, expected);
        entry.ok = true;
      });
    }
  }
  after(printTable);
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

/** Makes what the engine lacks of the stand-ins that the FROM lines of `truths` name. */
function makeBases(folder: string, engine: "docker" | "podman", truths: readonly Truth[]): void {
  const aliases = new Map<string, string>();
  for (const truth of truths) {
    if (truth.base_kind === null || truth.base === null) continue;
    const dockerfile = join(folder, truth.path, "environment", "Dockerfile");
    const written = existsSync(dockerfile)
      ? /^\s*FROM\s+(?:--\S+\s+)*(\S+)/im.exec(readFileSync(dockerfile, "utf8"))?.[1]
      : truth.base;
    if (written !== undefined) aliases.set(written, truth.base_kind);
  }
  const lacking = [...aliases].filter(([image]) => spawnSync(engine, ["image", "inspect", image]).status !== 0);
  if (lacking.length === 0) return;
  const script = dataPath("kit", "make-public-bases.sh");
  assert.ok(script !== undefined, "GYM_HARBOR_DATA has no kit/make-public-bases.sh");
  const bases = process.env.REAL_BASES ?? join(tmpdir(), "gym-harbor-bases");
  const named = lacking.flatMap(([image, kind]) => ["--alias", `${image}=${kind}`]);
  const kinds = [...new Set(lacking.map(([, kind]) => kind.split("@")[0]!))].join(" ");
  const made = spawnSync("bash", [script, bases, "--tool", engine, "--only", kinds, ...named], { encoding: "utf8" });
  assert.equal(made.status, 0, `${script}: ${made.stderr}`);
}

function printTable(): void {
  const width = Math.max(10, ...results.map((one) => one.path.length));
  const lines = results.map((one) =>
    [
      one.ok ? "ok  " : "FAIL",
      one.sandbox.padEnd(6),
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
    features: [],
  };
  assert.equal(expectedOf(truth, "docker").kind, "scored");
  assert.equal(expectedOf({ ...truth, score: null }, "docker").kind, "no-reward");
  assert.equal(expectedOf({ ...truth, build: "fail" }, "docker").kind, "build-fails");
  assert.equal(expectedOf({ ...truth, features: ["heredoc-RUN"] }, "podman").kind, "build-fails");
  assert.equal(expectedOf({ ...truth, features: ["heredoc-RUN"] }, "host").kind, "scored");
});
