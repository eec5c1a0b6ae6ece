import assert from "node:assert/strict";
import { test } from "node:test";
import { bytesText } from "../../lib/bytes.ts";

test("bytesText() has three digits and the unit that fits", () => {
  const rows: [number, string][] = [
    [0, "0 B"],
    [999, "999 B"],
    [1000, "1.00 kB"],
    [9_999, "10.0 kB"],
    [45_600_000, "45.6 MB"],
    [99_960_000, "100 MB"],
    [999_600_000, "1.00 GB"],
    [7.891e11, "789 GB"],
  ];
  for (const [bytes, text] of rows) assert.equal(bytesText(bytes), text);
});
