import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate } from "node:timers";
import { hashLargeTask } from "../../../lib/digest/large.ts";
import { hashTask } from "../../../lib/digest/task.ts";
import { TaskTree } from "../../../lib/digest/tree.ts";
import { contextHash } from "../../../lib/digest/context.ts";
import { type Files, TempFolder, writeFiles } from "../../support/tasks.ts";

const MIB = 1024 * 1024;
const FILES: Files = {
  "task.toml": "",
  "instruction.md": "x",
  "environment/Dockerfile": "FROM x",
  "environment/blob": "0123456789abcdef".repeat(4 * MIB + 1), // just over one slice of 64 MiB
  "tests/test.sh": "t",
};

test("hashLargeTask() gives the values of hashTask(), with help for the context or without", async () => {
  using temp = new TempFolder();
  writeFiles(temp.path, FILES);
  const wanted = hashTask(temp.path, { dirhash: true });
  const asked: string[] = [];
  for (
    const beside of [
      undefined,
      (folder: string) => (asked.push(folder), Promise.resolve(contextHash(folder))),
      () => Promise.resolve(undefined),
    ]
  ) {
    const options = { signal: new AbortController().signal, dirhash: true, largeBytes: MIB, beside };
    assert.deepEqual(await hashLargeTask(new TaskTree(temp.path), options), wanted);
  }
  assert.deepEqual(asked, [temp.join("environment")]);
});

test("hashLargeTask() asks for no help with a small task", async () => {
  using temp = new TempFolder();
  writeFiles(temp.path, { "task.toml": "", "environment/Dockerfile": "FROM x" });
  const beside = () => Promise.reject(new Error("not to be asked"));
  const hashes = await hashLargeTask(new TaskTree(temp.path), { signal: new AbortController().signal, beside });
  assert.deepEqual(hashes, hashTask(temp.path));
});

test("hashLargeTask() hears an abort within a file and stops its helper", async () => {
  using temp = new TempFolder();
  writeFiles(temp.path, FILES);
  const abort = new AbortController();
  let stopped = false;
  const beside = (_: string, signal: AbortSignal): Promise<undefined> => {
    setImmediate(() => abort.abort(new Error("Ctrl-C")));
    return new Promise((resolve) => signal.addEventListener("abort", () => resolve(void (stopped = true))));
  };
  const options = { signal: abort.signal, largeBytes: MIB, beside };
  await assert.rejects(hashLargeTask(new TaskTree(temp.path), options), /Ctrl-C/);
  assert.equal(stopped, true);
});
