/** Names that nobody else has. */

/** `length` characters of `[a-z0-9]` at random. */
export function randomWord(length: number): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(length)), (byte) => (byte % 36).toString(36)).join("");
}

/** A whole number from 0 up to, not including, `limit` (at most 2^32). */
export function randomBelow(limit: number): number {
  return crypto.getRandomValues(new Uint32Array(1))[0]! % limit;
}
