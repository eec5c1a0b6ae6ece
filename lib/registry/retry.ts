/** Which answers of a registry are worth another try, and when (spec/images-and-sandboxes §5.5). Pure. */

/** Tries of one request in all, the first one included. */
export const TRIES = 4;
/** A registry may ask us to wait this long; one that asks for more is left alone for the rest of the command. */
export const LONGEST_WAIT_MS = 60_000;
/** Rounds of waiting before a registry that still answers 429 is left alone. */
export const WAITS = 2;

const TRANSIENT = new Set([408, 500, 502, 503, 504]);

export const isTransient = (status: number): boolean => TRANSIENT.has(status);

/** Pause before try `next` (2, 3, …): 1 s doubled to at most 15 s, full jitter; `random` is in [0, 1). */
export function pauseMs(next: number, random: number): number {
  return Math.min(15_000, 1000 * 2 ** (next - 2)) * random;
}

/** `Retry-After` in milliseconds from `now`: seconds or an HTTP date (RFC 9110 §10.2.3); undefined when it is neither. */
export function retryAfterMs(header: string | null, now: Date): number | undefined {
  const text = header?.trim() ?? "";
  if (/^\d{1,9}$/.test(text)) return Number(text) * 1000;
  // Date.parse() takes many things for a date; HTTP's dates begin with the name of the day.
  if (!/^[A-Za-z]{3,9},? /.test(text)) return undefined;
  const at = Date.parse(text);
  return Number.isNaN(at) ? undefined : Math.max(0, at - now.getTime());
}
