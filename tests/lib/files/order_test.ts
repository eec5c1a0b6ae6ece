import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { test } from "node:test";
import { byCodePoint, sortByCodePoint } from "../../../lib/files/order.ts";

const NAMES = [
  "é",
  "B",
  "a-b",
  "a/b",
  "a.b",
  "a",
  "",
  "\u{1f600}",
  "\uffee",
  "\ue000",
  "\u{10ffff}x",
  "\u{10000}",
  "e\u0301",
  "\ud7ff",
];

test("sortByCodePoint() and byCodePoint() give the order of UTF-8 bytes", () => {
  const wanted = [...NAMES].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  assert.deepEqual(sortByCodePoint([...NAMES]), wanted);
  assert.deepEqual([...NAMES].sort(byCodePoint), wanted);
  const plain = NAMES.filter((name) => !/[\ud800-\udfff]/.test(name));
  assert.deepEqual(sortByCodePoint([...plain]), wanted.filter((name) => plain.includes(name)));
});
