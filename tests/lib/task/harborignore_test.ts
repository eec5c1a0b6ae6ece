import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { test } from "node:test";
import { HarborError } from "../../../lib/errors.ts";
import { walkTree } from "../../../lib/files/tree.ts";
import { readHarborIgnore } from "../../../lib/task/harborignore.ts";
import { type Files, TempFolder, writeFiles } from "../../support/tasks.ts";

/** Files and links that are left out, by a walk that enters no excluded folder. */
function leftOut(files: Files): string[] {
  using temp = new TempFolder();
  writeFiles(temp.join("task"), files);
  const ignore = readHarborIgnore(temp.join("task"));
  const out: string[] = [];
  walkTree(temp.join("task"), ({ path, kind }) => {
    if (!ignore.excludes(path, kind)) return;
    out.push(path);
    return false;
  });
  return out.filter((path) => !path.endsWith(".harborignore"));
}

const CASES: { title: string; files: Files; out: string[] }[] = [
  {
    title: "patterns hold below their own folder, the deeper file wins",
    files: {
      "tests/.harborignore": "*.log\n*.txt\n",
      "tests/a.log": "",
      "tests/sub/.harborignore": "!*.log\n/x\n",
      "tests/sub/b.log": "",
      "tests/sub/c.txt": "",
      "tests/sub/x": "",
      "tests/sub/deep/x": "",
      "tests/x": "",
    },
    out: ["tests/a.log", "tests/sub/c.txt", "tests/sub/x"],
  },
  {
    title: "a folder that is out hides what an inner file would take back",
    files: { "tests/.harborignore": "sub/\n", "tests/sub/.harborignore": "!*\n", "tests/sub/a": "" },
    out: ["tests/sub"],
  },
  {
    title: "only tests, solution and those of steps are in scope",
    files: {
      ".harborignore": "*\n",
      "environment/.harborignore": "*\n",
      "environment/a": "",
      "steps/.harborignore": "*\n",
      "steps/s/.harborignore": "*\n",
      "steps/s/workdir/.harborignore": "*\n",
      "steps/s/workdir/a": "",
      "steps/s/tests/.harborignore": "a\n",
      "steps/s/tests/a": "",
      "steps/s/solution/.harborignore": "a\n",
      "steps/s/solution/a": "",
      "steps/s/deeper/tests/.harborignore": "a\n",
      "steps/s/deeper/tests/a": "",
      "solution/.harborignore": "a\n",
      "solution/a": "",
    },
    out: ["solution/a", "steps/s/solution/a", "steps/s/tests/a"],
  },
  {
    title: "a link is out by its own name or by where it leads in the end",
    files: {
      "tests/.harborignore": "real\nlk\nmid\n",
      "tests/real": "",
      "tests/kept": "",
      "tests/lk": { symlink: "kept" },
      "tests/to-real": { symlink: "real" },
      "tests/mid": { symlink: "kept" },
      "tests/end": { symlink: "mid" },
      "environment/l": { symlink: "../tests/real" },
    },
    out: ["environment/l", "tests/lk", "tests/mid", "tests/real", "tests/to-real"],
  },
  {
    title: "a link out of the task may be left out",
    files: { "tests/.harborignore": "x\n", "tests/x": { symlink: "/etc" } },
    out: ["tests/x"],
  },
  {
    title: "the file may be a link inside the task; one to nothing counts as none",
    files: {
      "tests/.harborignore": { symlink: "rules" },
      "tests/rules": "a\n",
      "tests/a": "",
      "solution/.harborignore": { symlink: "gone" },
      "solution/a": "",
    },
    out: ["tests/a"],
  },
  {
    title: "tests/ itself is never out",
    files: { "tests/.harborignore": "tests\n*/\n", "tests/a/b": "" },
    out: ["tests/a"],
  },
];
for (const { title, files, out } of CASES) {
  test(`readHarborIgnore(): ${title}`, () => assert.deepEqual(leftOut(files), out));
}

test("readHarborIgnore() leaves every .harborignore out, wherever it lies", () => {
  using temp = new TempFolder();
  writeFiles(temp.path, { "environment/.harborignore": "", ".harborignore": "", "tests/.harborignore": "" });
  const ignore = readHarborIgnore(temp.path);
  for (const path of [".harborignore", "environment/.harborignore", "tests/.harborignore"]) {
    assert.equal(ignore.excludes(path, "file"), true, path);
  }
  assert.equal(ignore.excludes("tests/a.harborignore", "file"), false);
});

test("readHarborIgnore() judges what lies behind a link to a folder by both places", () => {
  using temp = new TempFolder();
  writeFiles(temp.path, {
    "tests/.harborignore": "sub/a\n",
    "tests/sub/a": "",
    "extra/l": { symlink: "../tests/sub" },
  });
  assert.equal(readHarborIgnore(temp.path).excludes("extra/l/a", "file"), true);
});

const REFUSED: [string, Files, RegExp][] = [
  ["a folder", { "tests/.harborignore": { dir: 1 } }, /^Cannot read tests\/\.harborignore: it is a folder$/],
  ["not UTF-8", { "tests/.harborignore": { hex: "ff0a" } }, /^Cannot read tests\/\.harborignore: it is not UTF-8$/],
  [
    "a link out",
    { "tests/.harborignore": { symlink: "../../rules" } },
    /it is a link that leads out of the task folder$/,
  ],
  ["a bad pattern", { "tests/.harborignore": "a\n!\n" }, /^tests\/\.harborignore:2: '!' is no ignore pattern$/],
  ["one in a step", { "steps/s/solution/.harborignore": { hex: "ff" } }, /steps\/s\/solution\/\.harborignore/],
];
for (const [what, files, message] of REFUSED) {
  test(`readHarborIgnore() refuses and names it: ${what}`, () => {
    using temp = new TempFolder();
    writeFiles(temp.path, { rules: "", "task/tests/test.sh": "", "task/steps/s/solution/solve.sh": "" });
    writeFiles(temp.join("task"), files);
    assert.throws(() => readHarborIgnore(temp.join("task")), (error: HarborError) => {
      assert.equal(error.code, "task.invalid");
      assert.match(error.message, message);
      return true;
    });
  });
}

test("readHarborIgnore() does not read a bad file that takes no effect", () => {
  using temp = new TempFolder();
  writeFiles(temp.path, {
    "environment/.harborignore": { hex: "ff" },
    "tests/.harborignore": "sub\n",
    "tests/sub/.harborignore": { hex: "ff" },
    "tests/sub/a": "",
  });
  mkdirSync(temp.join("solution"));
  assert.equal(readHarborIgnore(temp.path).excludes("tests/sub/a", "file"), true);
});
