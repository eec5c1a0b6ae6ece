/** `ports` and `expose`: what a service offers to the others. Nothing is ever opened on this machine. Pure. */
import { isTable, type Value } from "./document.ts";
import { asInteger, asText } from "./scalars.ts";

export interface Port {
  /** Ports inside, a range in full. */
  targets: number[];
  protocol: string;
  /** As written: where the file wants it on the host. */
  published?: string;
  hostIp?: string;
}

const MOST_OF_A_RANGE = 1000;

/** One entry in either form, or what is wrong with it. */
export function readPort(entry: Value): Port | string {
  if (isTable(entry)) {
    const targets = range(asText(entry.target) ?? "");
    if (targets === undefined) return "has no target between 1 and 65535";
    const unknown = Object.keys(entry).find((key) =>
      !["target", "published", "host_ip", "protocol", "mode", "name", "app_protocol"].includes(key)
    );
    if (unknown !== undefined) return `has the unknown key '${unknown}'`;
    return settled(targets, asText(entry.protocol) ?? "tcp", asText(entry.published), asText(entry.host_ip));
  }
  const text = asText(entry)?.trim();
  const found = text === undefined
    ? null
    : /^(?:(?:(\[[0-9a-fA-F:]*\]|[0-9.]*|[0-9a-fA-F:]*:[0-9a-fA-F:]*):)?([0-9-]*):)?([0-9-]+)(?:\/([a-z]+))?$/i.exec(
      text,
    );
  const targets = found === null ? undefined : range(found[3]!);
  if (targets === undefined) return `'${text ?? "a list"}' is no port`;
  return settled(targets, found![4] ?? "tcp", found![2], found![1]);
}

function settled(targets: number[], protocol: string, published: string | undefined, hostIp: string | undefined): Port {
  return {
    targets,
    protocol: protocol.toLowerCase(),
    ...(published !== undefined && published !== "" && { published }),
    ...(hostIp !== undefined && hostIp !== "" && { hostIp }),
  };
}

function range(text: string): number[] | undefined {
  const [first, last = first, more] = text.split("-");
  const [from, to] = [asInteger(first), asInteger(last)];
  if (from === undefined || to === undefined || more !== undefined) return undefined;
  if (from < 1 || to > 65535 || to < from || to - from >= MOST_OF_A_RANGE) return undefined;
  return Array.from({ length: to - from + 1 }, (_, index) => from + index);
}
