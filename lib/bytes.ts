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

/** Bytes of a size as people write it: `500M`, `20GB`, `1.5TiB`, plain bytes; undefined for anything else. */
export function bytesFrom(text: string): number | undefined {
  const [, count, unit = ""] = /^(\d+(?:\.\d+)?) ?([kmgtp]i?)?b?$/i.exec(text) ?? [];
  if (count === undefined) return undefined;
  const power = ["", "k", "m", "g", "t", "p"].indexOf(unit.slice(0, 1).toLowerCase());
  return Math.floor(Number(count) * (unit.length === 2 ? 1024 : 1000) ** power);
}
