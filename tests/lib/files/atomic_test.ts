import assert from "node:assert/strict";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { writeAtomic } from "../../../lib/files/atomic.ts";
import { TempFolder } from "../../support/tasks.ts";

test("writeAtomic() replaces a file whole and leaves nothing beside it", async () => {
  using temp = new TempFolder();
  const path = temp.join("a.json");
  writeFileSync(path, "old, and longer than the new one");
  await writeAtomic(path, "new");
  assert.equal(readFileSync(path, "utf8"), "new");
  assert.deepEqual(readdirSync(temp.path), ["a.json"]);
});

test("writeAtomic() keeps the old file and no temporary one when it fails", async () => {
  using temp = new TempFolder();
  mkdirSync(temp.join("taken/inside"), { recursive: true });
  await assert.rejects(writeAtomic(temp.join("taken"), "x"));
  assert.deepEqual(readdirSync(temp.path), ["taken"]);
  await assert.rejects(writeAtomic(temp.join("no/such/folder"), "x"), { code: "ENOENT" });
});

test("writeAtomic() takes a name as long as the file system does", async () => {
  using temp = new TempFolder();
  const path = temp.join("n".repeat(255));
  await writeAtomic(path, "x");
  assert.equal(readFileSync(path, "utf8"), "x");
});
