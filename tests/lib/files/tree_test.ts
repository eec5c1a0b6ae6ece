import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { Buffer } from "node:buffer";
import { chmodSync } from "node:fs";
import process from "node:process";
import { test } from "node:test";
import { type Entry, walkTree } from "../../../lib/files/tree.ts";
import { HarborError } from "../../../lib/errors.ts";
import { TempFolder, writeFiles } from "../../support/tasks.ts";

function walked(root: string, visit: (entry: Entry) => boolean | void = () => {}): string[] {
  const seen: string[] = [];
  walkTree(root, (entry) => {
    seen.push(`${entry.kind} ${entry.path}`);
    return visit(entry);
  });
  return seen;
}

test("walkTree() meets files in code-point order of their whole paths", () => {
  using temp = new TempFolder();
  writeFiles(temp.path, { "é": "", "a/b": "", "a-b": "", "a.b": "", B: "", "\uffee": "", "\u{1f600}": "", "a/é": "" });
  assert.deepEqual(walked(temp.path), [
    "file B",
    "file a-b",
    "file a.b",
    "dir a",
    "file a/b",
    "file a/é",
    "file é",
    "file \uffee",
    "file \u{1f600}",
  ]);
});

test("walkTree() reports links and FIFOs by kind, follows and opens none", () => {
  using temp = new TempFolder();
  writeFiles(temp.path, {
    "d/f": "",
    "loop": { symlink: "." },
    "dangling": { symlink: "nowhere" },
    "to-file": { symlink: "d/f" },
    "empty": { dir: 1 },
  });
  execFileSync("mkfifo", [temp.join("fifo")]);
  assert.deepEqual(walked(temp.path), [
    "dir d",
    "file d/f",
    "link dangling",
    "dir empty",
    "other fifo",
    "link loop",
    "link to-file",
  ]);
});

test("walkTree() leaves out what lies below a folder that the visitor refuses", () => {
  using temp = new TempFolder();
  writeFiles(temp.path, { "a/x/y": "", "b/z": "" });
  assert.deepEqual(walked(temp.path, ({ path }) => path !== "a"), ["dir a", "dir b", "file b/z"]);
});

test("walkTree() names a file whose name is not UTF-8, and takes a real U+FFFD", () => {
  using temp = new TempFolder();
  writeFiles(temp.path, { "d/real-\ufffd": "" });
  assert.deepEqual(walked(temp.path), ["dir d", "file d/real-\ufffd"]);
  execFileSync("sh", ["-c", `printf x > "$(printf 'bad-\\377')"`], { cwd: temp.join("d") });
  assert.throws(() => walked(temp.path), (error: HarborError) => {
    assert.equal(error.code, "task.invalid");
    assert.match(error.message, /\/d\/bad-\ufffd: the file's name is not UTF-8/);
    return true;
  });
});

test(
  "walkTree() names a folder that is gone or cannot be read",
  { skip: process.getuid?.() === 0 && "root reads all" },
  () => {
    using temp = new TempFolder();
    writeFiles(temp.path, { "shut/f": "" });
    chmodSync(temp.join("shut"), 0);
    try {
      assert.throws(() => walked(temp.path), /Cannot read the folder .*\/shut: .*permission denied/);
    } finally {
      chmodSync(temp.join("shut"), 0o755);
    }
  },
);

test("walkTree() walks a folder whose own path is given with odd bytes", () => {
  using temp = new TempFolder();
  writeFiles(temp.join("a b\n'c"), { f: Buffer.from("x").toString() });
  assert.deepEqual(walked(temp.join("a b\n'c")), ["file f"]);
  assert.throws(() => walked(temp.join("absent")), /Cannot read the folder .*absent/);
});
