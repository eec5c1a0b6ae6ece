import { test } from "node:test";
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync, utimesSync, writeFileSync } from "node:fs";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { readRecordFile, updateRecordFile } from "../../../lib/images/record_file.ts";
import { systemClock as clock } from "../../../lib/runtime/clock.ts";
import { TempFolder } from "../../support/tasks.ts";

test("updateRecordFile() writes sorted, readable JSON and leaves no lock and no temporary file", async () => {
  using folder = new TempFolder("records");
  const path = folder.join("r.json");
  await updateRecordFile(path, () => ({ b: { z: 1, a: [2, 1] }, "\u{1F600}": 1, "\uFFEE": 2 }), { clock });
  assert.equal(
    readFileSync(path, "utf8"),
    '{\n  "b": {\n    "a": [\n      2,\n      1\n    ],\n    "z": 1\n  },\n  "\uFFEE": 2,\n  "\u{1F600}": 1\n}\n',
  );
  assert.deepEqual(readdirSync(folder.path), ["r.json"]);
});

test("an empty .lock file, which NeMo Gym leaves, holds nobody up", async () => {
  using folder = new TempFolder("records");
  const path = folder.join("r.json");
  writeFileSync(`${path}.lock`, "");
  await updateRecordFile(path, (found) => ({ ...found, a: 1 }), { clock });
  assert.deepEqual(readRecordFile(path), { a: 1 });
  assert.equal(readFileSync(`${path}.lock`, "utf8"), "", "and it stays as it is");
});

test("where nothing changes, no lock is taken and nothing is written", async () => {
  using folder = new TempFolder("records");
  const path = folder.join("r.json");
  writeFileSync(path, '{"a":1}');
  writeFileSync(`${path}.held`, '{"host":"elsewhere","pid":1,"start":"","token":"t"}\n');
  assert.deepEqual(await updateRecordFile(path, (found) => ({ ...found, a: 1 }), { clock }), { a: 1 });
  assert.equal(readFileSync(path, "utf8"), '{"a":1}', "not even formatted");
  assert.ok(existsSync(`${path}.held`));
});

const malformed: [string, string | Uint8Array][] = [
  ["half a file", '{"a": {'],
  ["a list", "[]"],
  ["no UTF-8", new Uint8Array([0x7b, 0xff, 0x7d])],
  ["nothing", ""],
];
for (const [name, content] of malformed) {
  test(`a malformed file is refused by name and never overwritten: ${name}`, async () => {
    using folder = new TempFolder("records");
    const path = folder.join("compose-images.json");
    writeFileSync(path, content);
    const refusal = { code: "store.corrupt", message: /compose-images\.json/ };
    assert.throws(() => readRecordFile(path), refusal);
    await assert.rejects(updateRecordFile(path, () => ({ a: 1 }), { clock }), refusal);
    assert.deepEqual(new Uint8Array(readFileSync(path)), new Uint8Array(Buffer.from(content)));
  });
}

test("a writer that died between its temporary file and the rename loses nothing, and its file goes", async () => {
  using folder = new TempFolder("records");
  const path = folder.join("r.json");
  await updateRecordFile(path, () => ({ old: 1 }), { clock });
  writeFileSync(folder.join(".r.json.0b1c.tmp"), '{"half":');
  assert.deepEqual(readRecordFile(path), { old: 1 });
  await updateRecordFile(path, (found) => ({ ...found, next: 2 }), { clock });
  assert.deepEqual(readRecordFile(path), { next: 2, old: 1 });
  assert.deepEqual(readdirSync(folder.path), ["r.json"]);
});

test("two processes that merge 200 entries each lose none", async () => {
  using folder = new TempFolder("records");
  const path = folder.join("r.json");
  const program = fileURLToPath(new URL("../../support/merge_records.ts", import.meta.url));
  const ended = await Promise.all(["a", "b"].map((prefix) =>
    new Promise<number | null>((done) => {
      const args = ["run", "-A", "--no-check", program, path, prefix, "200"];
      spawn(process.execPath, args, { stdio: ["ignore", "inherit", "inherit"] }).on("exit", done);
    })
  ));
  assert.deepEqual(ended, [0, 0]);
  const found = readRecordFile(path);
  assert.equal(Object.keys(found).length, 400);
  assert.deepEqual(readdirSync(folder.path), ["r.json"]);
});

test("a lock whose holder died elsewhere is taken over by its silence, whatever this machine's clock says", async () => {
  using folder = new TempFolder("records");
  const path = folder.join("r.json");
  const lock = `${path}.held`;
  writeFileSync(lock, '{"host":"another","pid":4711,"start":"x","token":"t"}\n');
  const longAgo = new Date(Date.now() - 3_600_000);
  utimesSync(lock, longAgo, longAgo);
  await updateRecordFile(path, () => ({ a: 1 }), { clock: { ...clock, now: () => new Date(0) } });
  assert.deepEqual(readRecordFile(path), { a: 1 });
  assert.equal(existsSync(lock), false);
});
