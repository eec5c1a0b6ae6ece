import { test } from "node:test";
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { HeadTail } from "../../../lib/runtime/head_tail.ts";

function kept(limit: number, ...chunks: string[]): { text: string; dropped: number } {
  const keeper = new HeadTail(limit);
  for (const chunk of chunks) keeper.push(Buffer.from(chunk));
  return { text: keeper.text(), dropped: keeper.droppedBytes };
}

for (
  const [what, limit, chunks, text, dropped] of [
    ["nothing", 10, [], "", 0],
    ["less than the limit", 10, ["abc", "de"], "abcde", 0],
    ["exactly the limit", 10, ["abcde", "fghij"], "abcdefghij", 0],
    ["one byte more", 10, ["abcdefghijk"], "abcde\n[… 1 bytes left out …]\nghijk", 1],
    ["many small chunks", 4, [..."abcdefgh"], "ab\n[… 4 bytes left out …]\ngh", 4],
    ["a chunk larger than the tail", 4, ["ab", "cdefghijkl"], "ab\n[… 8 bytes left out …]\nkl", 8],
    ["an odd limit", 5, ["abcdefg"], "ab\n[… 2 bytes left out …]\nefg", 2],
    ["a limit of one", 1, ["abc"], "\n[… 2 bytes left out …]\nc", 2],
    ["a limit of zero", 0, ["abc"], "\n[… 3 bytes left out …]\n", 3],
    ["a byte order mark", 10, ["\ufeffab"], "\ufeffab", 0],
    ["characters whole at both cuts", 8, ["aaaü", "xxxx", "übbb"], "aaa\n[… 8 bytes left out …]\nbbb", 6],
  ] as const
) {
  test(`HeadTail keeps ${what}`, () => assert.deepEqual(kept(limit, ...chunks), { text, dropped }));
}

test("HeadTail agrees with cutting the whole at once, however it arrives", () => {
  const whole = Buffer.from(Array.from({ length: 3000 }, (_, index) => 97 + (index * 7) % 26));
  for (const step of [1, 3, 64, 100, 999, 3000]) {
    const keeper = new HeadTail(200);
    for (let at = 0; at < whole.length; at += step) keeper.push(whole.subarray(at, at + step));
    assert.equal(keeper.droppedBytes, 2800);
    assert.equal(
      keeper.text(),
      `${whole.subarray(0, 100)}\n[… 2800 bytes left out …]\n${whole.subarray(2900)}`,
      `step ${step}`,
    );
  }
});

test("HeadTail does not hold on to the caller's buffer", () => {
  const keeper = new HeadTail(100);
  const chunk = Buffer.from("before");
  keeper.push(chunk);
  chunk.fill("x");
  assert.equal(keeper.text(), "before");
});
