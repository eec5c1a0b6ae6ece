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
