import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Redactor } from "../../../lib/rollouts/redact.ts";

test("G1: Redactor names the variable instead of its value, in every string of a value", () => {
  const redactor = new Redactor({ API_KEY: "sk-abcdef", LONG_KEY: "sk-abcdef-more" });
  const row = { output: ["key sk-abcdef-more", { text: "sk-abcdef" }], reward: 1 };
  assert.deepEqual(redactor.value(row), { output: ["key [LONG_KEY]", { text: "[API_KEY]" }], reward: 1 });
});

test("Redactor leaves short values and well-known names alone", () => {
  const redactor = new Redactor({ FLAG: "1", HOME: "/home/me", LC_ALL: "C.UTF-8" });
  assert.equal(redactor.empty, true);
  assert.equal(redactor.text("1 /home/me"), "1 /home/me");
});

test("Redactor finds a secret that lies across two reads of a file and keeps every other byte", async () => {
  const folder = mkdtempSync(join(tmpdir(), "gh-redact-"));
  try {
    const path = join(folder, "log");
    const filler = "\xff".repeat(64 * 1024 - 3); // file streams read 64 KiB at a time
    writeFileSync(path, `${filler}gehéim!${filler}`.replaceAll("é", "Ã©"), "latin1");
    await new Redactor({ PASSWORD: "gehéim!" }).file(path);
    assert.equal(readFileSync(path, "latin1"), `${filler}[PASSWORD]${filler}`);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("Redactor follows no link", async () => {
  const folder = mkdtempSync(join(tmpdir(), "gh-redact-"));
  try {
    writeFileSync(join(folder, "target"), "hidden");
    symlinkSync("target", join(folder, "log"));
    await new Redactor({ WORD: "hidden" }).file(join(folder, "log"));
    assert.equal(readFileSync(join(folder, "target"), "utf8"), "hidden");
  } finally {
    rmSync(folder, { recursive: true });
  }
});
