/** Folder verdicts of Harbor 0.25.0 with verification: `--strict` takes a folder when is_valid_dir and load both do. */
import { test } from "node:test";
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { loadTask } from "../../../lib/task/load.ts";
import { type Files, writeTree } from "../../support/tree.ts";

const data = process.env.GYM_HARBOR_DATA ?? "/nonexistent";
const file = join(data, "vectors/harbor-0.25.0/task-folders.jsonl");
const skip = !existsSync(file) && "GYM_HARBOR_DATA is not set";

interface Row {
  case: string;
  files: Files;
  is_valid_dir: boolean | string;
  load: string;
}

test("loadTask() gives Harbor's folder verdicts under --strict", { skip }, () => {
  for (const line of readFileSync(file, "utf8").trim().split("\n")) {
    const row = JSON.parse(line) as Row;
    using tree = writeTree(row.files);
    const loaded = loadTask(tree.path, { strict: true });
    const wanted = row.is_valid_dir === true && row.load === "ok";
    const why = loaded.errors.map((one) => `${one.code}: ${one.message}`).join("; ");
    assert.equal(loaded.task !== null, wanted, `${row.case}: wanted ${row.load}, found ${why || "ok"}`);
    assert.equal(loaded.errors.length === 0, loaded.task !== null, row.case);
  }
});

/** More of the same kinds, from the rules of spec/harbor-upstream (0.25.0 B, C): [case, files, taken]. */
const LINUX = { "instruction.md": "x", "environment/Dockerfile": "FROM x", "tests/test.sh": "t" };
const WINDOWS = '[environment]\nos = "windows"\n';
const OWN_CASES: [string, Files, boolean][] = [
  ["windows task, linux verifier with test.sh", {
    ...LINUX,
    "task.toml": `${WINDOWS}[verifier.environment]\nos = "linux"\n`,
  }, true],
  ["windows task, separate without os, test.sh only", {
    ...LINUX,
    "task.toml": `${WINDOWS}[verifier.environment]\ncpus = 1\n`,
  }, false],
  [
    "environment empty",
    { "task.toml": "", "instruction.md": "x", "tests/test.sh": "t", "environment": { dir: 1 } },
    true,
  ],
  ["no environment, empty docker_image", {
    "task.toml": '[environment]\ndocker_image = ""\n',
    "instruction.md": "x",
    "tests/test.sh": "t",
  }, false],
  [
    "instruction.md is a link to outside",
    { ...LINUX, "task.toml": "", "instruction.md": { symlink: "/etc/hostname" } },
    true,
  ],
  ["instruction.md is a folder", {
    "task.toml": "",
    "environment/Dockerfile": "FROM x",
    "tests/test.sh": "t",
    "instruction.md": { dir: 1 },
  }, false],
  ["solution is a link to outside", { ...LINUX, "task.toml": "", "solution": { symlink: "/usr/share" } }, false],
  ["tests is a broken link", {
    "task.toml": "",
    "instruction.md": "x",
    "environment/Dockerfile": "FROM x",
    "tests": { symlink: "nope" },
  }, false],
  ["tests is a link to a folder of the task", {
    "task.toml": "",
    "instruction.md": "x",
    "environment/Dockerfile": "FROM x",
    "t/test.sh": "t",
    "tests": { symlink: "t" },
  }, true],
  ["steps = [] is a single step", { ...LINUX, "task.toml": "steps = []\n" }, true],
  ["separate, environment/ links outside", {
    ...LINUX,
    "task.toml": '[verifier]\nenvironment_mode = "separate"\n',
    "environment/x": { symlink: "/etc" },
  }, false],
  ["separate, own image, environment/ links outside", {
    ...LINUX,
    "task.toml": '[verifier.environment]\ndocker_image = "v"\n',
    "environment/x": { symlink: "/etc" },
  }, true],
  ["shared step under a separate task needs a script", {
    "task.toml":
      '[verifier]\nenvironment_mode = "separate"\n[[steps]]\nname = "s"\n[steps.verifier]\nenvironment_mode = "shared"\n',
    "environment/Dockerfile": "FROM x",
    "steps/s/instruction.md": "i",
    "tests/Dockerfile": "FROM x",
  }, false],
  ["separate step with a Dockerfile in its tests", {
    "task.toml": '[[steps]]\nname = "s"\n[steps.verifier]\nenvironment_mode = "separate"\n',
    "environment/Dockerfile": "FROM x",
    "steps/s/instruction.md": "i",
    "steps/s/tests/Dockerfile": "FROM x",
  }, true],
  ["step link ignored by its own .harborignore", {
    ...LINUX,
    "task.toml": '[[steps]]\nname = "s"\n',
    "steps/s/instruction.md": "i",
    "steps/s/tests/x": { symlink: "/etc" },
    "steps/s/tests/.harborignore": "x\n",
  }, true],
  ["a .harborignore beside the step's tests has no effect", {
    ...LINUX,
    "task.toml": '[[steps]]\nname = "s"\n',
    "steps/s/instruction.md": "i",
    "steps/s/x": { symlink: "/etc" },
    "steps/s/.harborignore": "x\n",
  }, false],
  ["tests/verifier.py alone is Gym's, not Harbor's", {
    "task.toml": "",
    "instruction.md": "x",
    "environment/Dockerfile": "FROM x",
    "tests/verifier.py": "x",
  }, false],
];
for (const [what, files, taken] of OWN_CASES) {
  test(`loadTask() --strict: ${what}`, () => {
    using tree = writeTree(files);
    const result = loadTask(tree.path, { strict: true });
    assert.equal(result.task !== null, taken, JSON.stringify(result.errors));
  });
}
