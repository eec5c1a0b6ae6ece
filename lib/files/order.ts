/**
 * The one order in which paths are hashed and shown: Unicode code points, which is the order of their UTF-8 bytes.
 * JavaScript compares UTF-16 units, which puts U+1F600 before U+FFEE (task-format §9).
 */
const ASTRAL = /[\ud800-\udfff]/;

/** Compares two strings by code point; usable as a `sort` callback. */
export function byCodePoint(a: string, b: string): number {
  const shorter = Math.min(a.length, b.length);
  for (let i = 0; i < shorter; i++) {
    const left = a.charCodeAt(i);
    const right = b.charCodeAt(i);
    if (left !== right) return rank(left) - rank(right);
  }
  return a.length - b.length;
}

/** Sorts in place by code point. The engine's own sort does it unless a surrogate is in play. */
export function sortByCodePoint(strings: string[]): string[] {
  return strings.some((one) => ASTRAL.test(one)) ? strings.sort(byCodePoint) : strings.sort();
}

/** Lifts surrogates above U+E000–U+FFFF, where the code points they stand for belong. */
function rank(unit: number): number {
  if (unit < 0xd800) return unit;
  return unit < 0xe000 ? unit + 0x2000 : unit - 0x800;
}
