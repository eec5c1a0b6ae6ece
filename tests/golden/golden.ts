/** Golden files: whole outputs, kept beside the test. `deno task golden` rewrites them, and the diff is read. */
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";

/** Compares `text` with the file `tests/golden/<name>`, or writes it there. */
export function golden(name: string, text: string): void {
  const path = join(import.meta.dirname!, name);
  if (process.env.GOLDEN === "write") {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
    return;
  }
  assert.ok(existsSync(path), `${name} is not there: deno task golden writes it`);
  assert.equal(text, readFileSync(path, "utf8"), `${name} differs: deno task golden rewrites it, then read the diff`);
}
