import assert from "node:assert/strict";
import { test } from "node:test";
import { bytesFrom } from "../../../lib/bytes.ts";
import { columns } from "../../../lib/report/columns.ts";

test("columns() aligns cells and leaves no blanks at the end", () => {
  assert.deepEqual(columns([["a", "bb", ""], ["ccc", "d", "e"]]), ["a    bb", "ccc  d   e"]);
  assert.deepEqual(columns([]), []);
});

const SIZES: [text: string, bytes: number | undefined][] = [
  ["500", 500],
  ["500B", 500],
  ["1.5k", 1500],
  ["20G", 20e9],
  ["20 GB", 20e9],
  ["1TiB", 2 ** 40],
  ["1ib", undefined],
  ["-1G", undefined],
  ["big", undefined],
  ["", undefined],
];
for (const [text, bytes] of SIZES) {
  test(`bytesFrom("${text}") is ${bytes}`, () => assert.equal(bytesFrom(text), bytes));
}
