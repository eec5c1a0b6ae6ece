/** Names that nobody else has. */

/** `length` characters of `[a-z0-9]` at random. */
export function randomWord(length: number): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(length)), (byte) => (byte % 36).toString(36)).join("");
}
