import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { HarborError } from "../../../lib/errors.ts";
import { bytesOf, never, sha256, sourceOf, testStore } from "../../support/images.ts";
import { TempFolder } from "../../support/tasks.ts";

const BYTES = bytesOf("0123456789".repeat(1000));
const BLOB = { mediaType: "application/octet-stream", digest: sha256(BYTES), size: BYTES.length };
const HEX = BLOB.digest.slice("sha256:".length);

/** Hands over `pieces` one per request, each from the offset that is asked; an Error among them breaks the stream off. */
function scripted(pieces: (Uint8Array | Error)[], offsets: number[] = []) {
  return (offset: number): Promise<AsyncIterable<Uint8Array>> => {
    offsets.push(offset);
    const piece = pieces.shift();
    return Promise.resolve((async function* () {
      await Promise.resolve();
      if (piece instanceof Uint8Array) yield piece;
      if (piece instanceof Error) throw piece;
    })());
  };
}

test("take() goes on with what another process left, and asks only for the rest", async () => {
  using temp = new TempFolder("blobs");
  mkdirSync(temp.join(".partial"));
  writeFileSync(temp.join(".partial", `${HEX}.part`), BYTES.subarray(0, 4000));
  const offsets: number[] = [];
  const store = testStore(temp.path);
  await store.take(BLOB, scripted([BYTES.subarray(4000)], offsets), never);
  assert.deepEqual(offsets, [4000]);
  assert.deepEqual(new Uint8Array(readFileSync(store.blobPath(BLOB.digest))), BYTES);
  await store.take(BLOB, () => assert.fail("it is here"), never);
});

test("take() asks again where a source breaks off, while that brings something", async () => {
  using temp = new TempFolder("blobs");
  const offsets: number[] = [];
  const pieces = [BYTES.subarray(0, 100), BYTES.subarray(100, 5000), BYTES.subarray(5000)];
  await testStore(temp.path).take(BLOB, scripted(pieces, offsets), never);
  assert.deepEqual(offsets, [0, 100, 5000]);
});

test("a left-over that was another's half is thrown away and fetched from the beginning", async () => {
  using temp = new TempFolder("blobs");
  mkdirSync(temp.join(".partial"));
  writeFileSync(temp.join(".partial", `${HEX}.part`), "rubbish");
  const offsets: number[] = [];
  await testStore(temp.path).take(BLOB, (offset) => {
    offsets.push(offset);
    return sourceOf(BYTES)(offset);
  }, never);
  assert.deepEqual(offsets, [7, 0]);
});

const WRONG: [name: string, pieces: (Uint8Array | Error)[], says: RegExp, kept: number][] = [
  ["other bytes", [new Uint8Array(BYTES.length)], /what came has the digest sha256:/, 0],
  ["a cut-off end", [BYTES.subarray(0, 1234)], /ended after 1234 of 10000 bytes/, 1234],
  ["a broken connection", [new Error("reset")], /ended after 0 of 10000 bytes: reset/, 0],
  ["more than announced", [bytesOf("x".repeat(10001))], /more came than the 10000 bytes/, 0],
  ["a refusal", [new HarborError("image.failed", "no such blob")], /^no such blob$/, 0],
];
for (const [name, pieces, says, kept] of WRONG) {
  test(`take() refuses ${name}, and no blob has the name`, async () => {
    using temp = new TempFolder("blobs");
    const store = testStore(temp.path);
    await assert.rejects(store.take(BLOB, scripted(pieces), never), (error: unknown) => {
      assert.ok(error instanceof HarborError);
      assert.equal(error.code, "image.failed");
      assert.match(error.message, says);
      return true;
    });
    assert.equal(store.has(BLOB.digest), false);
    assert.equal(readFileSync(temp.join(".partial", `${HEX}.part`)).length, kept);
    assert.equal(existsSync(temp.join(".partial", `${HEX}.part.lock`)), false);
  });
}

test("two that want one blob ask its source once", async () => {
  using temp = new TempFolder("blobs");
  let asked = 0;
  const slow = (offset: number): Promise<AsyncIterable<Uint8Array>> => {
    asked++;
    return Promise.resolve((async function* () {
      await new Promise((resolve) => setTimeout(resolve, 30));
      yield BYTES.subarray(offset);
    })());
  };
  await Promise.all([1, 2, 3].map(() => testStore(temp.path).take(BLOB, slow, never)));
  assert.equal(asked, 1);
});

test("an abort ends a take and keeps what came", async () => {
  using temp = new TempFolder("blobs");
  const abort = new AbortController();
  const endless = (): Promise<AsyncIterable<Uint8Array>> =>
    Promise.resolve((async function* () {
      yield BYTES.subarray(0, 500);
      abort.abort(new Error("enough"));
      await Promise.resolve();
      yield BYTES.subarray(500, 600);
    })());
  await assert.rejects(testStore(temp.path).take(BLOB, endless, abort.signal), /enough/);
  assert.equal(readFileSync(temp.join(".partial", `${HEX}.part`)).length, 500);
});

test("a digest that is no file name is refused", async () => {
  using temp = new TempFolder("blobs");
  for (const digest of ["sha256:../../etc", "sha512:00", `sha256:${"A".repeat(64)}`]) {
    await assert.rejects(testStore(temp.path).take({ ...BLOB, digest }, sourceOf(BYTES), never), /is not a digest/);
  }
});
