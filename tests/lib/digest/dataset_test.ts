import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { canonicalJson } from "../../../lib/digest/canonical.ts";
import { datasetDigest, effectiveDigest, verifierDigest } from "../../../lib/digest/dataset.ts";
import { TempFolder, writeFiles } from "../../support/tasks.ts";

const sha = (text: string) => createHash("sha256").update(text).digest("hex");
const FOLDER = "ab".repeat(32);

for (
  const [what, settings] of [
    ["no settings", {}],
    ["multipliers of 1", { defaults: { timeout_multiplier: 1, resource_multiplier: 1.0 } }],
    ["num_repeats", { defaults: { num_repeats: 8 } as Record<string, number> }],
  ] as const
) {
  test(`effectiveDigest() is the folder's own digest: ${what}`, () => {
    assert.equal(effectiveDigest(FOLDER, settings), FOLDER);
  });
}

test("effectiveDigest() covers multipliers, the task's override and the verifier that grades it, in this layout", () => {
  assert.equal(
    effectiveDigest(FOLDER, {
      defaults: { timeout_multiplier: 2.5 },
      override: { environment: { memory_mb: 10, cpus: 2.0 } },
      verifier: sha("v"),
    }),
    sha(
      `task\0${FOLDER}\n` +
        `gym.defaults\0${sha('{"resource_multiplier":1,"timeout_multiplier":2.5}')}\n` +
        `gym.tasks\0${sha('{"environment":{"cpus":2,"memory_mb":10}}')}\n` +
        `verifier.py\0${sha("v")}\n`,
    ),
  );
});

test("canonicalJson() sorts keys by code point and writes no blanks", () => {
  assert.equal(
    canonicalJson({ "\u{1f600}": 1, "\uffee": [1.0, "a\n", null, true], b: { z: 1e21, y: 0.1 }, a: undefined }),
    '{"b":{"y":0.1,"z":1e+21},"\uffee":[1,"a\\n",null,true],"\u{1f600}":1}',
  );
  assert.equal(canonicalJson({ n: 9007199254740993n }), '{"n":9007199254740993}');
  assert.throws(() => canonicalJson({ n: NaN }), TypeError);
});

test("datasetDigest() covers tasks in any order, dataset.toml and the dataset's Python files", () => {
  using temp = new TempFolder();
  const tasks = [sha("2"), sha("1")].sort();
  assert.deepEqual(datasetDigest(temp.path, [...tasks].reverse()), {
    dataset_digest: sha(`${tasks[0]}\n${tasks[1]}\n`),
  });
  writeFiles(temp.path, { "dataset.toml": "", "task_data.py": "t", "verifier.py": "v", "other.py": "o" });
  const files = sha(`task_data.py\0${sha("t")}\nverifier.py\0${sha("v")}\n`);
  assert.deepEqual(datasetDigest(temp.path, tasks), {
    dataset_digest: sha(`${tasks[0]}\n${tasks[1]}\n${sha("")}\n${files}\n`),
    dataset_toml_digest: sha(""),
    dataset_files_digest: files,
  });
  assert.equal(verifierDigest(temp.path), sha("v"));
});
