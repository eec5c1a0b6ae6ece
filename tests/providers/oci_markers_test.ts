import { test } from "node:test";
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { MarkerStream, newSecret } from "../../providers/_oci_markers.ts";

const SECRET = "0123456789abcdef0123456789abcdef";

/** Feeds `bytes` in pieces of `size` and returns what came out. */
function split(bytes: Uint8Array, size: number): { data: Buffer; markers: string[][] } {
  const data: Uint8Array[] = [];
  const markers: string[][] = [];
  const stream = new MarkerStream(SECRET, (chunk) => data.push(Buffer.from(chunk)), (words) => markers.push(words));
  for (let at = 0; at < bytes.length; at += size) stream.push(bytes.subarray(at, at + size));
  stream.end();
  return { data: Buffer.concat(data), markers };
}

test("MarkerStream takes markers out and leaves every other byte, however the stream is cut", () => {
  const before = Buffer.from("no newline\n\n\nbinary \xff\0\n", "latin1");
  const between = Buffer.from("\n0123456789abcdef0123456789abcde not ours\n\n");
  const after = Buffer.from("tail\n");
  const bytes = Buffer.concat([
    Buffer.from(`\n${SECRET} start 12 345\n`),
    before,
    Buffer.from(`\n${SECRET} run\n\n${SECRET} end 0\n`),
    between,
    Buffer.from(`\n${SECRET} refused larger than 5 bytes\n`),
    after,
  ]);
  for (const size of [1, 2, 3, 7, 33, 34, 35, 64, bytes.length]) {
    const { data, markers } = split(bytes, size);
    assert.deepEqual(markers, [["start", "12", "345"], ["run"], ["end", "0"], [
      "refused",
      "larger",
      "than",
      "5",
      "bytes",
    ]], `${size}`);
    assert.ok(data.equals(Buffer.concat([before, between, after])), `pieces of ${size}`);
  }
});

test("MarkerStream gives back at the end what only looked like the beginning of a marker", () => {
  for (const tail of ["\n", "\n0123", `\n${SECRET}`, `\n${SECRET} cut off`]) {
    assert.equal(split(Buffer.from(`data${tail}`), 5).data.toString(), `data${tail}`);
  }
});

test("MarkerStream passes data on as it comes, not when the stream ends", () => {
  const seen: string[] = [];
  const stream = new MarkerStream(SECRET, (chunk) => seen.push(Buffer.from(chunk).toString()), () => {});
  stream.push(Buffer.from("progress 1\rprogress 2\r"));
  assert.deepEqual(seen, ["progress 1\rprogress 2\r"]);
});

test("newSecret() is 128 bits that nobody guesses", () => {
  assert.match(newSecret(), /^[0-9a-f]{32}$/);
  assert.notEqual(newSecret(), newSecret());
});
