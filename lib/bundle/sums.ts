/**
 * `SHA256SUMS` as GNU sha256sum writes and checks it (coreutils 9.1): one line a file, `<hex>  <path>`, sorted by the
 * bytes of the path. A name with a backslash, line feed or carriage return is escaped, and its line begins with a
 * backslash. Pure.
 */
import { byCodePoint } from "../files/order.ts";

/** Lines for `path → hex digest`, paths relative to the folder of the file. */
export function sumsText(sums: ReadonlyMap<string, string>): string {
  return [...sums].sort(([a], [b]) => byCodePoint(a, b)).map(([path, hex]) => {
    const escaped = path.replace(/[\\\n\r]/g, (char) => ESCAPES[char]!);
    return `${escaped === path ? "" : "\\"}${hex}  ${escaped}\n`;
  }).join("");
}

const ESCAPES: Record<string, string> = { "\\": "\\\\", "\n": "\\n", "\r": "\\r" };
const UNESCAPES: Record<string, string> = { "\\\\": "\\", "\\n": "\n", "\\r": "\r" };

export interface ReadSums {
  /** `path → hex digest`. */
  sums: Map<string, string>;
  /** 1-based lines that are no such line. */
  bad: number[];
}

/** Reads what sumsText() or sha256sum wrote; text and binary marks are the same. */
export function readSums(text: string): ReadSums {
  const read: ReadSums = { sums: new Map(), bad: [] };
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  else read.bad.push(lines.length); // the last line was cut off
  lines.forEach((line, at) => {
    const match = /^(\\?)([0-9a-f]{64}) [ *](.+)$/s.exec(line);
    const path = match === null ? undefined : match[1] === "" ? match[3] : unescaped(match[3]!);
    if (path === undefined) read.bad.push(at + 1);
    else read.sums.set(path, match![2]!);
  });
  return { ...read, bad: [...new Set(read.bad)].sort((a, b) => a - b) };
}

function unescaped(text: string): string | undefined {
  if (/\\(?![\\nr])/.test(text.replaceAll("\\\\", ""))) return undefined;
  return text.replace(/\\[\\nr]/g, (pair) => UNESCAPES[pair]!);
}
