import { Buffer } from "node:buffer";

/**
 * Keeps the head and the tail of a byte stream within `limit` bytes, half each, and counts what fell out between.
 * The cause of a failure stands at the end, its context at the start (field cases B5, B7).
 */
export class HeadTail {
  #head: Buffer[] = [];
  #headBytes = 0;
  #tail: Buffer[] = [];
  #tailBytes = 0;
  droppedBytes = 0;

  constructor(private readonly limit: number) {}

  push(chunk: Uint8Array): void {
    let rest = Buffer.from(chunk);
    const room = Math.floor(this.limit / 2) - this.#headBytes;
    if (room > 0) {
      const head = rest.subarray(0, room);
      this.#head.push(head);
      this.#headBytes += head.length;
      rest = rest.subarray(head.length);
    }
    if (rest.length === 0) return;
    this.#tail.push(rest);
    this.#tailBytes += rest.length;
    const tailLimit = Math.ceil(this.limit / 2);
    while (this.#tailBytes > tailLimit && this.#tail.length > 0) {
      const first = this.#tail[0]!;
      const excess = this.#tailBytes - tailLimit;
      if (first.length <= excess) {
        this.#tail.shift();
        this.#tailBytes -= first.length;
        this.droppedBytes += first.length;
      } else {
        this.#tail[0] = first.subarray(excess);
        this.#tailBytes -= excess;
        this.droppedBytes += excess;
      }
    }
  }

  /** The kept text, decoded with replacement and cut on character boundaries, with a line where bytes are missing. */
  text(): string {
    if (this.droppedBytes === 0) return decode(Buffer.concat([...this.#head, ...this.#tail]));
    const head = Buffer.concat(this.#head);
    const tail = Buffer.concat(this.#tail);
    const cutHead = head.subarray(0, boundaryBefore(head));
    const cutTail = tail.subarray(boundaryAfter(tail));
    const dropped = this.droppedBytes + (head.length - cutHead.length) + (tail.length - cutTail.length);
    return `${decode(cutHead)}\n[… ${dropped} bytes left out …]\n${decode(cutTail)}`;
  }
}

const decode = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);

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
