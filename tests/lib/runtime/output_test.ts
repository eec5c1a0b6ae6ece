import { test } from "node:test";
import assert from "node:assert/strict";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { spawnSync } from "node:child_process";
import { LineWriter } from "../../../lib/runtime/output.ts";
import { selfArgv } from "../../../lib/runtime/self.ts";

test("LineWriter keeps the order and loses nothing", async () => {
  const folder = mkdtempSync(join(tmpdir(), "gh-output-"));
  const fd = openSync(join(folder, "f"), "w");
  const writer = new LineWriter(fd);
  const lines = Array.from({ length: 5000 }, (_, index) => `${index} ${"x".repeat(index % 200)}\n`);
  for (const [index, line] of lines.entries()) {
    writer.write(line);
    if (index % 1000 === 0) await new Promise((resolve) => setTimeout(resolve, 1));
  }
  await writer.flush();
  assert.equal(readFileSync(join(folder, "f"), "utf8"), lines.join(""));
  closeSync(fd);
  rmSync(folder, { recursive: true });
});

test("LineWriter is silent when nobody can read", async () => {
  const writer = new LineWriter(99_999);
  writer.write("lost\n");
  await writer.flush();
  writer.write("lost too\n");
  await writer.flush();
});

test("a reader that leaves ends our output, not our exit code", () => {
  const [program, ...args] = selfArgv(["-h"]);
  const piped = spawnSync("sh", ["-c", `{ "$0" "$@"; echo "exit $?" >&2; } | true`, program!, ...args], {
    encoding: "utf8",
    env: process.env,
  });
  assert.match(piped.stderr, /exit 0/);
  assert.doesNotMatch(piped.stderr, /EPIPE|at /);
});

test("results that a full disk swallowed are named, with exit 3", () => {
  const [program, ...args] = selfArgv(["--version"]);
  const full = spawnSync("sh", ["-c", '"$0" "$@" > /dev/full', program!, ...args], {
    encoding: "utf8",
    env: process.env,
  });
  assert.match(full.stderr, /^error\[store.unwritable\]: Cannot write to stdout: .*no space left on device/i);
  assert.equal(full.status, 3);
});
