/** Sizes as people read them. Pure. */

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

/** Powers of 1000, three digits: `0 B`, `999 B`, `1.23 kB`, `45.6 MB`, `789 GB`. */
export function bytesText(bytes: number): string {
  let value = bytes;
  let unit = 0;
  for (; value >= 999.5 && unit < UNITS.length - 1; unit++) value /= 1000;
  if (unit === 0) return `${Math.round(value)} B`;
  return `${value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0)} ${UNITS[unit]}`;
}
