/** The bytes of a blob, unpacked from gzip or zstd as their first bytes say, while both digests are taken. */
import { createHash, type Hash } from "node:crypto";
import { Buffer } from "node:buffer";
import { type FileHandle, open } from "node:fs/promises";
import { createGunzip, createZstdDecompress } from "node:zlib";

const READ_BYTES = 256 * 1024;
const CHUNK_BYTES = 256 * 1024;
/** Unpacked bytes that may wait for their reader: it works on one chunk while others are unpacked. */
const AHEAD_BYTES = 4 * 1024 * 1024;

export interface Digests {
  /** `sha256:…` and length of the bytes as they are stored. */
  blob: string;
  blobSize: number;
  /** `sha256:…` of the unpacked bytes. */
  diff: string;
}

/**
 * Gives every chunk of the unpacked bytes to `take`, in order; unpacking goes on in another thread meanwhile. Throws what
 * `take` throws, Node's error for bytes that cannot be unpacked, and the signal's reason.
 */
export async function unpacked(path: string, take: (chunk: Buffer) => void, signal: AbortSignal): Promise<Digests> {
  const blob = createHash("sha256");
  const diff = createHash("sha256");
  const file = await open(path, "r");
  try {
    let blobSize = 0;
    const stored = pieces(file, signal, (chunk) => {
      blob.update(chunk);
      blobSize += chunk.length;
    });
    await unpackedStream(stored, (chunk) => {
      diff.update(chunk);
      take(chunk);
    });
    return { blob: sha256(blob), blobSize, diff: sha256(diff) };
  } finally {
    await file.close();
  }
}

/** The same for bytes that come from anywhere, without digests. */
export async function unpackedStream(from: AsyncIterable<Uint8Array>, take: (chunk: Buffer) => void): Promise<void> {
  const source = buffers(from);
  const begin: Buffer[] = [];
  for (let length = 0; length < MAGIC_BYTES;) {
    const { value, done } = await source.next();
    if (done) break;
    begin.push(value);
    length += value.length;
  }
  const first = Buffer.concat(begin);
  const all = (async function* () {
    yield first;
    yield* source;
  })();
  const unpacker = unpackerFor(first);
  if (unpacker !== undefined) return await through(unpacker, all, take);
  for await (const chunk of all) take(chunk);
}

const MAGIC_BYTES = 4;

async function* buffers(from: AsyncIterable<Uint8Array>): AsyncGenerator<Buffer> {
  for await (const chunk of from) yield Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
}

async function* pieces(file: FileHandle, signal: AbortSignal, see: (chunk: Buffer) => void): AsyncGenerator<Buffer> {
  for (let at = 0;;) {
    signal.throwIfAborted();
    const buffer = Buffer.allocUnsafe(READ_BYTES);
    const { bytesRead } = await file.read(buffer, 0, READ_BYTES, at);
    if (bytesRead === 0) return;
    const chunk = buffer.subarray(0, bytesRead);
    see(chunk);
    at += bytesRead;
    yield chunk;
  }
}

const sha256 = (hash: Hash): string => `sha256:${hash.digest("hex")}`;

type Unpacker = ReturnType<typeof createGunzip> | ReturnType<typeof createZstdDecompress>;

/** By what the bytes are, since media types are wrong often enough. */
function unpackerFor(first: Buffer): Unpacker | undefined {
  if (first[0] === 0x1f && first[1] === 0x8b) return createGunzip({ chunkSize: CHUNK_BYTES });
  const magic = first.length >= MAGIC_BYTES ? first.readUInt32LE() : 0;
  const isZstd = magic === 0xfd2fb528 || (magic & 0xfffffff0) >>> 0 === 0x184d2a50; // the latter may be skipped
  return isZstd ? createZstdDecompress({ chunkSize: CHUNK_BYTES }) : undefined;
}

/** Feeds and drains an unpacker at once. What it gives is queued, so that its thread works while `take` does. */
async function through(unpacker: Unpacker, from: AsyncIterable<Buffer>, take: (chunk: Buffer) => void): Promise<void> {
  const queue: Buffer[] = [];
  let queued = 0;
  let ended = false;
  let fault: { error: unknown } | undefined;
  let wake = () => {};
  unpacker.on("data", (chunk: Buffer) => {
    queue.push(chunk);
    queued += chunk.length;
    if (queued > AHEAD_BYTES) unpacker.pause();
    wake();
  });
  unpacker.on("end", () => (ended = true, wake()));
  unpacker.on("error", (error: unknown) => (fault ??= { error }, wake()));
  unpacker.on("close", () => wake());
  const feeding = feed(unpacker, from).catch((error) => {
    fault ??= { error };
    wake();
  });
  try {
    while (fault === undefined) {
      const chunk = queue.shift();
      if (chunk !== undefined) {
        queued -= chunk.length;
        if (queued <= AHEAD_BYTES / 2) unpacker.resume();
        take(chunk);
        await turn();
      } else if (ended) break;
      else await new Promise<void>((resolve) => (wake = resolve));
    }
  } catch (error) {
    fault = { error };
  }
  unpacker.destroy();
  await feeding;
  if (fault !== undefined) throw fault.error;
}

async function feed(unpacker: Unpacker, from: AsyncIterable<Buffer>): Promise<void> {
  let proceed = () => {};
  unpacker.on("drain", () => proceed()).on("close", () => proceed());
  for await (const chunk of from) {
    if (unpacker.destroyed) return;
    if (!unpacker.write(chunk)) await new Promise<void>((room) => unpacker.destroyed ? room() : (proceed = room));
  }
  if (!unpacker.destroyed) unpacker.end();
}

/** Lets other work of the process have its turn: unpacked chunks come in faster than they are written. */
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
