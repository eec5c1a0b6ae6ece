import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { readSums, sumsText } from "../../../lib/bundle/sums.ts";
import { TempFolder } from "../../support/tasks.ts";

const NAMES = [
  "a",
  "b/c",
  "b-d",
  "with space",
  "back\\slash",
  "line\nfeed",
  "carriage\rreturn",
  "\u{1F600}",
  "\uFFEE",
  " x",
];
const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex");

test("sumsText() is what sha256sum checks, odd names included", () => {
  using folder = new TempFolder("sums");
  const sums = new Map<string, string>();
  for (const name of NAMES) {
    mkdirSync(dirname(folder.join(name)), { recursive: true });
    writeFileSync(folder.join(name), name);
    sums.set(name, sha256(name));
  }
  writeFileSync(folder.join("SHA256SUMS"), sumsText(sums));
  const said = execFileSync("sha256sum", ["-c", "--strict", "SHA256SUMS"], { cwd: folder.path, encoding: "latin1" });
  assert.equal(said.split("\n").filter((line) => line.endsWith(": OK")).length, NAMES.length, said);
});

test("readSums() reads back what sumsText() wrote, and what sha256sum writes", () => {
  const sums = new Map(NAMES.map((name) => [name, sha256(name)]));
  const read = readSums(sumsText(sums));
  assert.deepEqual(read.bad, []);
  assert.deepEqual(new Map([...read.sums].sort()), new Map([...sums].sort()));
  using folder = new TempFolder("sums");
  writeFileSync(join(folder.path, "x\\y"), "c");
  const theirs = execFileSync("sha256sum", ["x\\y"], { cwd: folder.path, encoding: "utf8" });
  assert.deepEqual(readSums(theirs).sums, new Map([["x\\y", sha256("c")]]));
});

test("sumsText() sorts by the bytes of the path", () => {
  const text = sumsText(new Map(["b/c", "b-d", "\u{1F600}", "\uFFEE", "B"].map((name) => [name, sha256(name)])));
  assert.deepEqual(text.trimEnd().split("\n").map((line) => line.slice(66)), [
    "B",
    "b-d",
    "b/c",
    "\uFFEE",
    "\u{1F600}",
  ]);
});

test("readSums() names the lines that are none, also a last one that was cut off", () => {
  const good = `${sha256("x")}  x\n`;
  assert.deepEqual(readSums(`${good}nonsense\n${good.replace("  x", " *y")}${good.slice(0, 40)}`), {
    sums: new Map([["x", sha256("x")], ["y", sha256("x")]]),
    bad: [2, 4],
  });
  assert.deepEqual(readSums(`\\${sha256("x")}  bad\\q\n`).bad, [1]);
});
