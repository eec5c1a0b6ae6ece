/** Where the bytes of a blob come from, from any offset on: what is in memory, an open file. */
import type { FileHandle } from "node:fs/promises";
import type { BlobSource } from "./partial.ts";

const CHUNK_BYTES = 1 << 20;

/** Bytes that are all here. */
export function memorySource(bytes: Uint8Array): BlobSource {
  // deno-lint-ignore require-await -- a source answers with a promise
  return async (offset) => onePart(bytes.subarray(offset));
}

async function* onePart(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  if (bytes.length > 0) yield bytes;
}

/** A file's bytes from `offset` on. */
export async function* piecesFrom(file: FileHandle, offset = 0): AsyncGenerator<Uint8Array> {
  for (let at = offset;;) {
    const { bytesRead, buffer } = await file.read(new Uint8Array(CHUNK_BYTES), 0, CHUNK_BYTES, at);
    if (bytesRead === 0) return;
    at += bytesRead;
    yield buffer.subarray(0, bytesRead);
  }
}
