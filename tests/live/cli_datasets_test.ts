/** Field cases D: what a folder of tasks says, and what is never dropped in silence. Needs no engine but the host's. */
import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { looksLikeStackTrace, runCli } from "../support/cli.ts";
import { sandboxTest } from "../support/kit.ts";
import { type Row, TempFolder, validate, writeFiles } from "../support/tasks.ts";

/** `check --json` of a folder: the exit code and one object per line. */
async function check(path: string, ...more: string[]): Promise<{ code: number | null; lines: Row[]; stderr: string }> {
  const result = await runCli(["check", path, "--json", ...more]);
  assert.equal(looksLikeStackTrace(result.stderr), false, result.stderr);
  return {
    code: result.code,
    lines: result.stdout.trim().split("\n").filter((line) => line !== "").map((line) => JSON.parse(line) as Row),
    stderr: result.stderr,
  };
}

const ENVIRONMENT = `[environment]\ndocker_image = "x"\n`;

/** A task.toml, the verdict of `check` and what must be said about it. */
const TOMLS: {
  id: string;
  title: string;
  toml: string;
  ok: boolean;
  says?: RegExp;
  strictOk?: boolean;
  resolved?: RegExp;
}[] = [
  {
    id: "D1",
    title: "[task] without a name loads under the folder's",
    toml: `[task]\ndescription = "x"\n${ENVIRONMENT}`,
    ok: true,
    says: /name/,
    strictOk: false,
  },
  {
    id: "D2",
    title: `memory = "8G" means 8192 MB`,
    toml: `${ENVIRONMENT}memory = "8G"\n`,
    ok: true,
    resolved: /"memory_mb":8192\b/,
  },
  {
    id: "D2",
    title: "memory = 4096 is not ignored in silence",
    toml: `${ENVIRONMENT}memory = 4096\n`,
    ok: true,
    says: /memory/,
  },
  {
    id: "D3",
    title: "a version of the task is optional",
    toml: `[task]\nname = "a/b"\nversion = "1"\n${ENVIRONMENT}`,
    ok: true,
  },
  {
    id: "D12",
    title: "a step name that climbs out is refused",
    toml: `${ENVIRONMENT}[[steps]]\nname = "../../etc"\n`,
    ok: false,
    says: /steps/,
  },
  {
    id: "D12",
    title: "an empty step name is refused",
    toml: `${ENVIRONMENT}[[steps]]\nname = ""\n`,
    ok: false,
    says: /steps/,
  },
  {
    id: "D12",
    title: "a step named twice is refused",
    toml: `${ENVIRONMENT}[[steps]]\nname = "s"\n[[steps]]\nname = "s"\n`,
    ok: false,
    says: /steps|twice|duplicate/,
  },
  {
    id: "unknown keys",
    title: "a misspelt key is named with the one that was meant",
    toml: `${ENVIRONMENT}[verifier]\ntimeout_secs = 5\n`,
    ok: true,
    says: /verifier\.timeout_secs.*timeout_sec\b/s,
  },
];

for (const row of TOMLS) {
  test(`${row.id}: ${row.title}`, async () => {
    using folder = new TempFolder("toml");
    const steps = /\[\[steps\]\]\nname = "(\w+)"/.exec(row.toml)?.[1];
    const task = folder.task("the-task", {
      files: {
        "task.toml": row.toml,
        ...(steps === undefined ? {} : {
          [`steps/${steps}/instruction.md`]: "x\n",
          [`steps/${steps}/tests/test.sh`]: "true\n",
        }),
      },
    });
    const { code, lines } = await check(task);
    const told = JSON.stringify(lines, null, 1);
    assert.equal(lines.length, 1, told);
    assert.equal(lines[0]!.ok, row.ok, told);
    assert.equal(lines[0]!.id, "the-task", told);
    assert.equal(code, row.ok ? 0 : 1, told);
    if (row.says !== undefined) assert.match(JSON.stringify([lines[0]!.errors, lines[0]!.warnings]), row.says, told);
    if (row.resolved !== undefined) {
      const resolved = await check(task, "--resolved");
      assert.match(JSON.stringify(resolved.lines[0]), row.resolved);
    }
    if (row.strictOk !== undefined) {
      const strict = await check(task, "--strict");
      assert.equal(strict.lines[0]!.ok, row.strictOk, JSON.stringify(strict.lines));
    }
  });
}

test("D10: a dataset.toml with its tasks in the wrong table is no dataset of 0 tasks", async () => {
  using folder = new TempFolder("d10");
  writeFileSync(
    folder.join("dataset.toml"),
    `[dataset]\nname = "a/b"\ntasks = [{ name = "x/y", digest = "sha256:00" }]\n`,
  );
  const { code, lines } = await check(folder.path);
  assert.notEqual(code, 0, JSON.stringify(lines));
  assert.match(JSON.stringify(lines), /dataset\.tasks/);
});

test("D14: tasks come in the order of their names, however they were made", async () => {
  using folder = new TempFolder("d14");
  for (const name of ["b", "a10", "Z", "a2", "_x", "é", "a-1", "a.1"]) folder.task(name, {});
  const first = (await check(folder.path)).lines.map((line) => line.id);
  assert.deepEqual(first, [...first].sort((a: string, b: string) => (a < b ? -1 : 1)));
  assert.equal(first.length, 8);
});

sandboxTest("host", "D15: one broken task among good ones is named and the exit says no", async () => {
  using folder = new TempFolder("d15");
  for (const name of ["a", "c"]) folder.task(`data/${name}`, {});
  folder.task("data/b", { files: { "task.toml": "broken = \n" } });
  const output = folder.join("out", "rollouts.jsonl");
  const refused = await validate(folder.join("data"), output, ["--sandbox", "host"]);
  assert.notEqual(refused.code, 0, refused.stderr);
  assert.match(`${refused.stdout}${refused.stderr}`, /\bb\b.*task\.toml/s);
  const run = await validate(folder.join("data"), output, ["--sandbox", "host", "--skip-unloadable"]);
  assert.equal(run.code, 1, run.stderr);
  assert.deepEqual(run.rows.map((row) => row.reward), [1, 1]);
  assert.match(run.skipped.b ?? "", /task\.toml/);
  assert.deepEqual(run.table.find((line) => line[0] === "b")?.slice(2), ["-"]);
});

test("D17: a digest in dataset.toml that no longer fits is a note, not a failure", async () => {
  using folder = new TempFolder("d17");
  folder.task("one", {});
  writeFileSync(
    folder.join("dataset.toml"),
    `[dataset]\nname = "org/set"\n[[tasks]]\nname = "org/one"\ndigest = "sha256:${"0".repeat(64)}"\n`,
  );
  const { code, lines, stderr } = await check(folder.path);
  assert.equal(code, 0, `${JSON.stringify(lines)}${stderr}`);
});

sandboxTest(
  "host",
  "D6: a task that asks for what is not built is left out by name, never run as something else",
  async () => {
    using folder = new TempFolder("d6");
    const wants: Record<string, string> = {
      allowlist: `${ENVIRONMENT}network_mode = "allowlist"\nallowed_hosts = ["example.org"]\n`,
      separate: `${ENVIRONMENT}[verifier]\nenvironment_mode = "separate"\n`,
    };
    for (const [name, toml] of Object.entries(wants)) {
      folder.task(`data/${name}`, { test: "echo 1 > /logs/verifier/reward.txt", files: { "task.toml": toml } });
    }
    writeFiles(folder.join("data", "stepped"), {
      "task.toml": `${ENVIRONMENT}[[steps]]\nname = "one"\n`,
      "steps/one/instruction.md": "x\n",
      "steps/one/tests/test.sh": "true\n",
      "steps/one/solution/solve.sh": "true\n",
    });
    folder.task("data/composed", {
      files: { "environment/docker-compose.yaml": "services:\n  main:\n    image: x\n  db:\n    image: y\n" },
    });
    const run = await validate(folder.join("data"), folder.join("out", "rollouts.jsonl"), ["--sandbox", "host"]);
    assert.equal(run.code, 1, run.stderr);
    assert.deepEqual(run.rows, []);
    assert.match(run.skipped.composed ?? "", /host cannot run a Compose task/);
    for (const name of ["allowlist", "separate", "stepped"]) {
      assert.match(run.skipped[name] ?? "", /^not in this version: /, `${name}: ${JSON.stringify(run.skipped)}`);
    }
  },
);

test("a path that is not there, an empty folder and a selection of nothing are usage errors with a next step", async () => {
  using folder = new TempFolder("none");
  mkdirSync(folder.join("empty"));
  folder.task("data/one", {});
  const lines: [string[], RegExp][] = [
    [["validate", folder.join("absent"), "--sandbox", "host"], /absent/],
    [["validate", folder.join("empty"), "--sandbox", "host"], /task\.toml|no task/],
    [["validate", folder.join("data"), "--sandbox", "host", "--only-tasks", "two"], /two/],
    [["check", folder.join("absent")], /absent/],
    [["digest", folder.join("absent")], /absent/],
  ];
  for (const [argv, says] of lines) {
    const result = await runCli(argv, { cwd: folder.path });
    assert.equal(result.code, 2, `${argv.join(" ")}: ${result.stderr}`);
    assert.match(result.stderr, says);
    assert.match(result.stderr, /^error\[[a-z.-]+\]: /m, result.stderr);
    assert.match(result.stderr, /^hint: /m, `${argv.join(" ")}: ${result.stderr}`);
  }
});
