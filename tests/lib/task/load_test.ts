import { test } from "node:test";
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, symlinkSync } from "node:fs";
import process from "node:process";
import { loadTask } from "../../../lib/task/load.ts";
import type { Task } from "../../../lib/task/task.ts";
import { type Files, type TempTree, writeTree } from "../../support/tree.ts";

const IMAGE = '[environment]\ndocker_image = "busybox:1.36"\n';
const PLAIN: Files = { "task.toml": IMAGE, "instruction.md": "Do it.\n", "tests/test.sh": "#!/bin/sh\n" };

function loaded(files: Files, options: Parameters<typeof loadTask>[1] = {}): Task {
  using tree = writeTree(files);
  const result = loadTask(tree.path, options);
  assert.deepEqual(result.errors, []);
  return result.task!;
}

function codes(tree: TempTree, strict = false): string[] {
  return loadTask(tree.path, { strict, shownAs: "t" }).errors.map((one) => one.code);
}

test("loadTask() fills in every default", () => {
  const task = loaded(PLAIN);
  assert.deepEqual(task.agent, { timeout_sec: 28_800 });
  assert.deepEqual(task.verifier, { timeout_sec: 600, env: {}, collect: [], inputs: [] });
  assert.deepEqual(task.environment, {
    docker_image: "busybox:1.36",
    build_timeout_sec: 600,
    os: "linux",
    env: {},
    mcp_servers: [],
    network_mode: "public",
  });
  assert.equal(task.verifierMode, "shared");
  assert.equal(task.solution, null);
  assert.equal(task.grader?.kind, "test.sh");
  assert.equal(task.relativePath, task.id);
});

/** task-format §6.1: [docker_image, Dockerfile, other file] → mode, reference, has dockerfile, uploads. */
const IMAGES: [image: string | null, dockerfile: string | null, other: string | null, plan: string][] = [
  ["a:1", null, null, "prebuilt a:1"],
  ["a:1", null, "data.txt", "prebuilt a:1 uploads"],
  ["a:1", "FROM a:1\nWORKDIR /x\n", null, "prebuilt a:1 dockerfile"],
  ["a:1", "FROM b:1\nWORKDIR /x\n", "data.txt", "prebuilt a:1"],
  ["a:1", "FROM a:1\nRUN x\n", "data.txt", "prebuilt a:1"],
  [null, "FROM b:1\nWORKDIR /x\n", null, "pull b:1 dockerfile"],
  [null, "FROM b:1\nRUN x\n", null, "overlay b:1 dockerfile"],
  [null, "FROM b:1\nCOPY x x\n", "x", "build dockerfile COPY"],
  ["a:1", null, "docker-compose.yaml", "compose a:1"],
  [null, "FROM b:1\n", "docker-compose.yaml", "compose dockerfile"],
  ["", "FROM b:1\n", null, "pull b:1 dockerfile"],
];
for (const [image, dockerfile, other, plan] of IMAGES) {
  test(`E6: docker_image ${image}, Dockerfile ${JSON.stringify(dockerfile)}, ${other}: ${plan}`, () => {
    const task = loaded({
      ...PLAIN,
      "task.toml": image === null ? "" : `[environment]\ndocker_image = "${image}"\n`,
      ...(dockerfile !== null && { "environment/Dockerfile": dockerfile }),
      ...(other !== null && { [`environment/${other}`]: "x\n" }),
    });
    const { mode, reference, dockerfile: path, reason, uploads } = task.image;
    const said = [mode, reference, path && "dockerfile", reason, uploads && "uploads"].filter(Boolean).join(" ");
    assert.equal(said, plan);
  });
}

test("loadTask() falls a step back to its task, its verifier's timeout never", () => {
  const task = loaded({
    "task.toml":
      `artifacts = ["/a"]\n${IMAGE}[agent]\ntimeout_sec = 10\nuser = 1000\n[verifier]\ntimeout_sec = 20\nuser = "judge"\nenv = { A = "1", B = "1" }\n` +
      `[[verifier.collect]]\ncommand = "one"\n[[steps]]\nname = "x"\nartifacts = ["/b"]\n[steps.agent]\ntimeout_sec = 5\n[steps.verifier]\nenv = { B = "2" }\n` +
      `[[steps.verifier.collect]]\ncommand = "two"\n[[steps]]\nname = "y"\nmin_reward = { reward = 1 }\n`,
    "steps/x/instruction.md": "# canary\n\nX\n",
    "steps/y/instruction.md": "Y\n",
    "steps/y/solution/solve.sh": "true\n",
    "solution/answer.md": "42\n",
    "tests/test.sh": "true\n",
  });
  const [x, y] = task.steps;
  assert.equal(task.instruction, "");
  assert.equal(task.grader, null);
  assert.equal(x!.instruction, "X\n");
  assert.deepEqual([x!.agent, y!.agent], [{ timeout_sec: 5, user: "1000" }, { timeout_sec: 10, user: "1000" }]);
  assert.deepEqual(x!.verifier.env, { A: "1", B: "2" });
  assert.deepEqual([x!.verifier.timeout_sec, x!.verifier.user], [600, "judge"]);
  assert.deepEqual(x!.verifier.collect.map((one) => one.command), ["one", "two"]);
  assert.deepEqual(x!.artifacts.map((one) => one.source), ["/logs/artifacts", "/a", "/b"]);
  assert.equal(x!.solution?.kind, "answer.md");
  assert.equal(y!.solution?.kind, "solve.sh");
  assert.deepEqual(y!.min_reward, { reward: 1 });
});

/** task-format §5.4. */
const MODES: [verifier: string, mode: string][] = [
  ["", "shared"],
  ['[verifier.environment]\ndocker_image = "v"\n', "separate"],
  ['[verifier]\nenvironment_mode = "shared"\n', "shared"],
  ['[verifier]\nenvironment_mode = "separate"\n', "separate"],
];
for (const [verifier, mode] of MODES) {
  test(`a verifier with ${JSON.stringify(verifier)} is ${mode}`, () => {
    assert.equal(loaded({ ...PLAIN, "task.toml": IMAGE + verifier }).verifierMode, mode);
  });
}

test("a separate verifier's own image brings its tests; the task's image gets them uploaded", () => {
  const own = loaded({ "task.toml": `${IMAGE}[verifier.environment]\ndocker_image = "v"\n`, "instruction.md": "x" });
  assert.equal(own.grader, null);
  const built = loaded({
    "task.toml": `${IMAGE}[verifier]\nenvironment_mode = "separate"\n`,
    "instruction.md": "x",
    "tests/Dockerfile": "FROM x\n",
  });
  assert.equal(built.grader, null);
  assert.equal(
    loaded({ ...PLAIN, "task.toml": `${IMAGE}[verifier]\nenvironment_mode = "separate"\n` }).grader?.kind,
    "test.sh",
  );
});

test("who grades: test.sh, else tests/verifier.py, else the dataset's verifier.py where there is no tests/", () => {
  const kinds = (files: Files, datasetVerifier: string | null = "/d/verifier.py") => {
    const { "tests/test.sh": _, ...rest } = PLAIN;
    const grader = loaded({ ...rest, ...files }, { datasetVerifier }).grader;
    return grader?.kind === "python"
      ? `${grader.verifier.split("/").slice(-2).join("/")} ${grader.tests === null}`
      : grader?.kind;
  };
  assert.equal(kinds({ "tests/test.sh": "x", "tests/verifier.py": "x" }), "test.sh");
  assert.equal(kinds({ "tests/verifier.py": "x" }), "tests/verifier.py false");
  assert.equal(kinds({}), "d/verifier.py true");
});

test("task_data.json arrives as it is, README and other files do not matter", () => {
  const task = loaded({ ...PLAIN, "task_data.json": '{"a": [1, null]}', "README.md": "x", "notes.txt": "x" });
  assert.deepEqual(task.taskData, { a: [1, null] });
});

test("links that lead out are refused by name, also broken ones and ones to root files", () => {
  for (
    const [path, target] of [
      ["tests/x", "/etc/hostname"],
      ["tests/x", "../../out"],
      ["solution/deep/x", "../../../x"],
      ["environment/x", "/etc"],
    ] as const
  ) {
    using tree = writeTree({ ...PLAIN, [path]: { symlink: target } });
    const result = loadTask(tree.path, { shownAs: "t" });
    assert.deepEqual(result.errors.map((one) => [one.code, one.file]), [["link.escapes", path]]);
    assert.equal(result.errors[0]!.message, `t: Task file escapes the task folder: ${path}`);
  }
});

test("a tests folder that is a link to the whole machine is refused without reading it", () => {
  using tree = writeTree({ ...PLAIN, "tests/test.sh": "x" });
  using other = writeTree({ "task.toml": IMAGE, "instruction.md": "x" });
  symlinkSync("/", other.at("tests"));
  assert.ok(loadTask(other.path).errors.some((one) => one.code === "link.escapes" && one.file === "tests"));
  assert.deepEqual(codes(tree), []);
});

test("a link to a file inside the task is followed", () => {
  const task = loaded({ ...PLAIN, "tests/real.sh": "x", "tests/test.sh": { symlink: "real.sh" } });
  assert.equal(task.grader?.kind, "test.sh");
});

test("a FIFO inside the task, or in place of one of its files, is named and never opened", () => {
  for (
    const [file, code] of [["tests/pipe", "file.special"], ["instruction.md", "file.special"], [
      "task.toml",
      "toml",
    ]] as const
  ) {
    const { [file]: _, ...rest } = PLAIN as Record<string, never>;
    using tree = writeTree(rest);
    assert.equal(spawnSync("mkfifo", [tree.at(file)]).status, 0);
    const found = codes(tree);
    assert.ok(found.length > 0 && (code === "toml" || found.includes(code)), `${file}: ${found}`);
  }
});

test("an unreadable file or folder is a reason, not a crash", {
  skip: process.getuid?.() === 0 && "root reads everything",
}, () => {
  for (const path of ["task.toml", "instruction.md", "tests", "tests/test.sh"]) {
    using tree = writeTree(PLAIN);
    chmodSync(tree.at(path), 0);
    const result = loadTask(tree.path, { shownAs: "t" });
    chmodSync(tree.at(path), 0o755);
    assert.ok(result.errors.length > 0, path);
  }
});

test("folders in place of files are reasons", () => {
  for (
    const [path, code] of [["instruction.md", "task.unreadable"], ["task.toml", "task.unreadable"], [
      "tests/test.sh",
      "tests.no-grader",
    ], ["task_data.json", "task-data.invalid"]]
  ) {
    const { [path!]: _, ...rest } = PLAIN as Record<string, never>;
    using tree = writeTree({ ...rest, [path!]: { dir: 1 } });
    assert.equal(codes(tree)[0], code, path);
  }
});

test("hashes are given also where a task does not load", () => {
  using tree = writeTree({ ...PLAIN, "task.toml": "broken" });
  const { hashes, task, mode } = loadTask(tree.path);
  assert.equal(task, null);
  assert.equal(mode, "none");
  assert.match(hashes.task_digest!, /^[0-9a-f]{64}$/);
  assert.match(hashes.context_hash!, /^[0-9a-f]{32}$/);
});

test("names with blanks, signs and other scripts are names like others", () => {
  for (const name of ["a b", "a+b=c", "é", "步骤", ".x".slice(1), "x".repeat(255), "-rf", "a'b\"c"]) {
    using tree = writeTree(PLAIN, name);
    const result = loadTask(tree.path);
    assert.deepEqual([result.id, result.errors], [name, []]);
  }
});

test("C5: a task whose text files have CRLF loads, and its scripts are named", () => {
  using tree = writeTree({
    "task.toml": "[agent]\r\ntimeout_sec = 5\r\n",
    "instruction.md": "Do it.\r\n",
    "environment/Dockerfile": "FROM x\r\nRUN a \\\r\n  && b\r\n",
    "tests/test.sh": "#!/bin/bash\r\n",
    "solution/solve.sh": "#!/bin/bash\r\n",
  });
  const result = loadTask(tree.path, { shownAs: "t" });
  assert.deepEqual(result.errors, []);
  assert.equal(result.mode, "overlay");
  assert.deepEqual(result.warnings.map((one) => [one.code, one.file]), [["script.crlf", "tests/test.sh"], [
    "script.crlf",
    "solution/solve.sh",
  ]]);
});
