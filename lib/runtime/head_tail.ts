import { Buffer } from "node:buffer";

/**
 * Keeps the head and the tail of a byte stream within `limit` bytes, half each, and counts what fell out between.
 * The cause of a failure stands at the end, its context at the start (field cases B5, B7). Memory is bounded by `limit`
 * however small the chunks are: the tail is a ring that is made only when the head is full.
 */
export class HeadTail {
  readonly #headLimit: number;
  readonly #tailLimit: number;
  #head: Buffer[] = [];
  #headBytes = 0;
  #ring: Buffer | undefined;
  /** Bytes that ever went into the ring. */
  #tailTotal = 0;

  constructor(limit: number) {
    this.#headLimit = Math.floor(limit / 2);
    this.#tailLimit = Math.ceil(limit / 2);
  }

  get droppedBytes(): number {
    return Math.max(0, this.#tailTotal - this.#tailLimit);
  }

  push(chunk: Uint8Array): void {
    const room = this.#headLimit - this.#headBytes;
    if (room > 0 && chunk.length > 0) {
      const head = Buffer.from(chunk.subarray(0, room));
      this.#head.push(head);
      this.#headBytes += head.length;
      if (this.#head.length >= 1024) this.#head = [Buffer.concat(this.#head)];
    }
    const rest = chunk.subarray(Math.max(0, room));
    if (rest.length > 0) this.#pushTail(rest);
  }

  #pushTail(bytes: Uint8Array): void {
    const ring = (this.#ring ??= Buffer.allocUnsafe(this.#tailLimit));
    const kept = bytes.subarray(Math.max(0, bytes.length - ring.length));
    this.#tailTotal += bytes.length - kept.length;
    const at = ring.length === 0 ? 0 : this.#tailTotal % ring.length;
    const first = kept.subarray(0, ring.length - at);
    ring.set(first, at);
    ring.set(kept.subarray(first.length), 0);
    this.#tailTotal += kept.length;
  }

  #tail(): Buffer {
    const ring = this.#ring ?? Buffer.alloc(0);
    if (this.#tailTotal <= ring.length) return ring.subarray(0, this.#tailTotal);
    const at = ring.length === 0 ? 0 : this.#tailTotal % ring.length;
    return Buffer.concat([ring.subarray(at), ring.subarray(0, at)]);
  }

  /** The kept text, decoded with replacement and cut on character boundaries, with a line where bytes are missing. */
  text(): string {
    const head = Buffer.concat(this.#head);
    const tail = this.#tail();
    if (this.droppedBytes === 0) return decode(Buffer.concat([head, tail]));
    const cutHead = head.subarray(0, boundaryBefore(head));
    const cutTail = tail.subarray(boundaryAfter(tail));
    const dropped = this.droppedBytes + (head.length - cutHead.length) + (tail.length - cutTail.length);
    return `${decode(cutHead)}\n[… ${dropped} bytes left out …]\n${decode(cutTail)}`;
  }
}

const decode = (bytes: Uint8Array): string => new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);

/** Length of the longest prefix that does not end inside a UTF-8 sequence. */
function boundaryBefore(bytes: Uint8Array): number {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const byte = bytes[bytes.length - back]!;
    if ((byte & 0xc0) === 0x80) continue;
    const need = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return need > back ? bytes.length - back : bytes.length;
  }
  return bytes.length;
}

/** Index of the first byte that starts a character. */
function boundaryAfter(bytes: Uint8Array): number {
  let at = 0;
  while (at < Math.min(3, bytes.length) && (bytes[at]! & 0xc0) === 0x80) at++;
  return at;
}
