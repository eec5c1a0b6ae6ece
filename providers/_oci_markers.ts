/**
 * How a shell of ours inside a container speaks to us between the bytes of a task: lines that begin with a random
 * secret which travels by stdin only, so no output of a task can be taken for one.
 */
import { Buffer } from "node:buffer";

/** 128 bits, as hex digits. */
export const newSecret = (): string => crypto.randomUUID().replaceAll("-", "");

/**
 * Splits a stream into data and marker lines (`\n<secret> word word…\n`). The newline in front belongs to the marker,
 * so data comes out exactly as it went in. Holds back at most what could still become a marker.
 */
export class MarkerStream {
  #held: Buffer = Buffer.alloc(0);
  readonly #needle: Buffer;

  constructor(
    secret: string,
    private readonly onData: (chunk: Uint8Array) => void,
    private readonly onMarker: (words: string[]) => void,
  ) {
    this.#needle = Buffer.from(`\n${secret} `);
  }

  push(chunk: Uint8Array): void {
    let rest = this.#held.length === 0 ? Buffer.from(chunk) : Buffer.concat([this.#held, chunk]);
    this.#held = Buffer.alloc(0);
    while (rest.length > 0) {
      const start = rest.indexOf(this.#needle);
      if (start < 0) break;
      const end = rest.indexOf(0x0a, start + this.#needle.length);
      if (start > 0) this.onData(rest.subarray(0, start));
      if (end < 0) {
        this.#held = rest.subarray(start);
        return;
      }
      this.onMarker(rest.subarray(start + this.#needle.length, end).toString().split(" "));
      rest = rest.subarray(end + 1);
    }
    const keep = this.#possibleStart(rest);
    if (keep > 0) this.onData(rest.subarray(0, keep));
    this.#held = rest.subarray(keep);
  }

  /** The stream ended: what was held back is data after all. */
  end(): void {
    if (this.#held.length > 0) this.onData(this.#held);
    this.#held = Buffer.alloc(0);
  }

  /** Where a marker could begin at the very end of `bytes`; its length when none could. */
  #possibleStart(bytes: Buffer): number {
    const newline = bytes.lastIndexOf(0x0a);
    if (newline < 0 || bytes.length - newline >= this.#needle.length) return bytes.length;
    return this.#needle.subarray(0, bytes.length - newline).equals(bytes.subarray(newline)) ? newline : bytes.length;
  }
}
