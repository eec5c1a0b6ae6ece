/**
 * Addresses for the networks of groups: small subnets of our own, because an engine's default pools end at about thirty
 * networks (F1: "all predefined address pools have been fully subnetted"). IPv4 as numbers; pure.
 */

/** First and last address, both included. */
export interface Range {
  first: number;
  last: number;
}

/** `10.213.0.0/16` as a range; undefined when it is not one, or not of private addresses. */
export function rangeOf(cidr: string): Range | undefined {
  const match = /^(\d+)\.(\d+)\.(\d+)\.(\d+)\/(\d+)$/.exec(cidr);
  if (match === null) return undefined;
  const [a, b, c, d, prefix] = match.slice(1).map(Number) as [number, number, number, number, number];
  if ([a, b, c, d].some((part) => part > 255) || prefix > 32) return undefined;
  const size = 2 ** (32 - prefix);
  const address = ((a * 256 + b) * 256 + c) * 256 + d;
  const first = address - address % size;
  return { first, last: first + size - 1 };
}

const addressText = (address: number): string =>
  [24, 16, 8, 0].map((shift) => Math.floor(address / 2 ** shift) % 256).join(".");

/** The prefix of the smallest subnet for so many members, no smaller than 16 addresses: three of them are not to give. */
export function prefixFor(members: number): number {
  let prefix = 28;
  while (2 ** (32 - prefix) - 3 < members) prefix--;
  return prefix;
}

/** The address of the `index`th member; the first of a subnet is the engine's own. */
export const memberAddress = (subnet: string, index: number): string => addressText(rangeOf(subnet)!.first + 2 + index);

/** Subnets of a pool that do not touch what is busy, from a place of `start`'s choosing on, around to it. */
export function* freeSubnets(pool: Range, prefix: number, busy: readonly Range[], start: number): Generator<string> {
  const size = 2 ** (32 - prefix);
  const count = Math.floor((pool.last - pool.first + 1) / size);
  for (let step = 0; step < count; step++) {
    const first = pool.first + ((start + step) % count) * size;
    const last = first + size - 1;
    if (busy.some((range) => range.first <= last && first <= range.last)) continue;
    yield `${addressText(first)}/${prefix}`;
  }
}

/** What this machine has routes to, from /proc/net/route (addresses in host byte order, little-endian); not the default. */
export function routedRanges(table: string): Range[] {
  return table.split("\n").slice(1).flatMap((line) => {
    const words = line.split(/\s+/);
    const [destination, mask] = [swapped(words[1]), swapped(words[7])];
    if (destination === undefined || mask === undefined || mask === 0) return [];
    return [{ first: destination, last: destination + (0xffff_ffff - mask) }];
  });
}

const swapped = (hex: string | undefined): number | undefined =>
  hex !== undefined && /^[0-9A-F]{8}$/i.test(hex) ? parseInt(hex.match(/../g)!.reverse().join(""), 16) : undefined;
