/**
 * Entries of `allowed_hosts` (spec/harbor-upstream §2.2, checked against vectors/harbor-0.25.0): hostnames with an
 * optional leading `*.`, IP addresses, CIDR ranges. Never URLs, ports or paths.
 */
const LABEL = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;

/** The entry as it is compared later (trimmed, lower case, no trailing dot), or undefined when it is none. */
export function normalHost(entry: string): string | undefined {
  const host = entry.trim().toLowerCase().replace(/\.+$/, "");
  if (host === "") return undefined;
  if (host.includes("/")) return normalRange(host);
  if (host.includes(":")) return isIPv6(host) && !host.includes("%") ? host : undefined;
  if (isIPv4(host)) return host;
  const wildcard = host.startsWith("*.");
  const name = wildcard ? host.slice(2) : host;
  if (wildcard && isIPv4(name)) return undefined;
  return name.length <= 253 && name.split(".").every((label) => LABEL.test(label)) ? host : undefined;
}

/** `address/prefix` whose host bits are zero. */
function normalRange(range: string): string | undefined {
  const [address, prefix, ...rest] = range.split("/");
  if (rest.length > 0 || !/^\d{1,3}$/.test(prefix!) || address!.includes("%")) return undefined;
  const bits = isIPv4(address!) ? bytesOf4(address!) : isIPv6(address!) ? bytesOf6(address!) : undefined;
  if (bits === undefined || Number(prefix) > bits.length * 8) return undefined;
  const hostBitsZero = bits.every((byte, index) => {
    const kept = Math.min(8, Math.max(0, Number(prefix) - index * 8));
    return (byte & (0xff >> kept)) === 0;
  });
  return hostBitsZero ? `${address}/${Number(prefix)}` : undefined;
}

const OCTET = "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
const IPV4 = new RegExp(`^${OCTET}(?:\\.${OCTET}){3}$`);

/** Four decimal numbers without leading zeros. (node:net would cost its start for these two questions.) */
const isIPv4 = (text: string): boolean => IPV4.test(text);

/** Eight groups of hex, the last two perhaps as IPv4, one run of zeros left out by `::`. */
function isIPv6(text: string): boolean {
  const embedded = /^(.*:)([^:]*\..*)$/.exec(text);
  if (embedded !== null) return isIPv4(embedded[2]!) && isIPv6(`${embedded[1]}0:0`);
  const [head, tail, ...more] = text.split("::");
  if (more.length > 0) return false;
  const groups = [head!, tail ?? ""].flatMap((part) => part === "" ? [] : part.split(":"));
  const fits = tail === undefined ? groups.length === 8 : groups.length < 8;
  return fits && groups.every((group) => /^[0-9a-f]{1,4}$/.test(group));
}

const bytesOf4 = (address: string): number[] => address.split(".").map(Number);

function bytesOf6(address: string): number[] {
  const embedded = /^(.*:)(\d+\.\d+\.\d+\.\d+)$/.exec(address);
  if (embedded !== null) {
    const [a, b, c, d] = bytesOf4(embedded[2]!) as [number, number, number, number];
    return bytesOf6(`${embedded[1]}${(a * 256 + b).toString(16)}:${(c * 256 + d).toString(16)}`);
  }
  const [head, tail] = address.split("::") as [string, string | undefined];
  const groups = (text: string | undefined): string[] => text === undefined || text === "" ? [] : text.split(":");
  const left = groups(head);
  const right = groups(tail);
  const middle = new Array(8 - left.length - right.length).fill("0");
  return [...left, ...middle, ...right].flatMap((group) => {
    const value = parseInt(group, 16);
    return [value >> 8, value & 0xff];
  });
}
