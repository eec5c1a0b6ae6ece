import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { appendFileSync, chmodSync, mkdirSync, truncateSync, writeFileSync } from "node:fs";
import process from "node:process";
import { test } from "node:test";
import { FileReader, type Sink } from "../../../lib/digest/reader.ts";
import { HarborError } from "../../../lib/errors.ts";
import { TempFolder } from "../../support/tasks.ts";

const MIB = 1024 * 1024;
const sha = (data: Uint8Array | string) => createHash("sha256").update(data).digest("hex");

function sink(onBegin: () => void = () => {}): Sink & { length: number; seen: number; sum: string } {
  const hash = createHash("sha256");
  return {
    length: -1,
    seen: 0,
    begin(length) {
      this.length = length;
      onBegin();
    },
    bytes(chunk) {
      this.seen += chunk.length;
      hash.update(chunk);
    },
    get sum() {
      return hash.copy().digest("hex");
    },
  };
}

for (const length of [0, 1, MIB - 1, MIB, MIB + 1, 3 * MIB, 3 * MIB + 7]) {
  test(`FileReader gives every byte of a file of ${length} bytes, and their length before them`, () => {
    using temp = new TempFolder();
    const data = new Uint8Array(length).map((_, index) => index % 251);
    writeFileSync(temp.join("f"), data);
    const [fed, poured] = [sink(), sink()];
    assert.equal(new FileReader().feed(temp.join("f"), fed), sha(data));
    new FileReader().pour(temp.join("f"), poured);
    for (const one of [fed, poured]) assert.deepEqual([one.length, one.seen, one.sum], [length, length, sha(data)]);
  });
}

test("FileReader reads a file once, whatever is asked of it", async () => {
  using temp = new TempFolder();
  const reader = new FileReader();
  for (
    const [name, read] of [["a", () => reader.feed(temp.join("a"), sink())], [
      "b",
      () => reader.sum(temp.join("b")),
    ]] as const
  ) {
    writeFileSync(temp.join(name), "1");
    assert.equal(read(), sha("1"));
    writeFileSync(temp.join(name), "2");
    assert.equal(reader.sum(temp.join(name)), sha("1"));
  }
  writeFileSync(temp.join("c"), "1");
  await reader.sumInSlices(temp.join("c"), () => Promise.reject(new Error("not so soon")));
  writeFileSync(temp.join("c"), "2");
  assert.equal(reader.sum(temp.join("c")), sha("1"));
});

for (
  const [what, change] of [["grows", appendFileSync], [
    "shrinks",
    (path: string) => truncateSync(path, 2 * MIB),
  ]] as const
) {
  test(`FileReader says so when a large file ${what} while it is read`, () => {
    using temp = new TempFolder();
    const path = temp.join("f");
    writeFileSync(path, new Uint8Array(3 * MIB));
    assert.throws(() => new FileReader().feed(path, sink(() => change(path, "x"))), (error: HarborError) => {
      assert.equal(error.code, "task.invalid");
      assert.match(error.message, /\/f: it changed while it was read \(3145728 bytes, then \d+\)$/);
      return true;
    });
  });
}

test("FileReader opens nothing but regular files, and blocks on none", async () => {
  using temp = new TempFolder();
  execFileSync("mkfifo", [temp.join("fifo")]);
  mkdirSync(temp.join("folder"));
  await new FileReader().sumInSlices("/dev/zero", () => Promise.reject(new Error("it is being read")));
  for (const name of ["fifo", "folder", "absent"]) {
    assert.throws(() => new FileReader().sum(temp.join(name)), (error: HarborError) => {
      assert.equal(error.code, "task.invalid");
      assert.ok(error.message.startsWith(`Cannot read ${temp.join(name)}: `), error.message);
      return true;
    });
    const reader = new FileReader();
    await reader.sumInSlices(temp.join(name), () => Promise.resolve());
    assert.throws(() => reader.sum(temp.join(name)), { code: "task.invalid" });
  }
  assert.throws(() => new FileReader().sum("/dev/zero"), /it is not a regular file/);
});

test("FileReader names a file that may not be read", { skip: process.getuid?.() === 0 && "root reads all" }, () => {
  using temp = new TempFolder();
  writeFileSync(temp.join("f"), "1");
  chmodSync(temp.join("f"), 0);
  assert.throws(() => new FileReader().sum(temp.join("f")), /Cannot read .*\/f: .*permission denied/);
});
