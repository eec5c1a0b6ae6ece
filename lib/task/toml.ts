/**
 * TOML at the edge: text in, plain values out, faults with their line. The reader knows TOML 1.1 (smol-toml); byte
 * order marks and lone carriage returns, which it would let pass, are refused here, and `toml10` also refuses what
 * TOML 1.0 lacks, as Harbor's reader (Python 3.14's tomllib) does.
 */
import { parse, TomlDate, TomlError } from "smol-toml";

export { TomlDate };

export type TomlTable = Record<string, unknown>;

export type TomlResult =
  | { ok: true; table: TomlTable }
  | { ok: false; message: string; hint?: string; line: number };

export interface TomlOptions {
  /** Refuse what TOML 1.0 does not have. */
  toml10?: boolean;
}

/** Reads a document. Integers that a number cannot hold come as bigint. */
export function readToml(source: string, { toml10 = false }: TomlOptions = {}): TomlResult {
  // CRLF counts as LF inside strings too, as in Python's reader: a command must not end in a carriage return.
  const text = source.includes("\r\n") ? source.replaceAll("\r\n", "\n") : source;
  if (text.startsWith("\uFEFF")) {
    return {
      ok: false,
      line: 1,
      message: "begins with a byte order mark (U+FEFF), which TOML does not allow",
      hint: "save the file as UTF-8 without BOM",
    };
  }
  const loneReturn = text.indexOf("\r");
  if (loneReturn >= 0) {
    return {
      ok: false,
      line: lineAt(text, loneReturn),
      message: "holds a carriage return without a line feed, which TOML does not allow",
      hint: "end lines with LF or CRLF",
    };
  }
  try {
    const table = parse(text, { integersAsBigInt: "asNeeded" });
    const newer = toml10 ? beyondToml10(text) : undefined;
    return newer === undefined ? { ok: true, table } : { ok: false, ...newer };
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    return { ok: false, ...syntaxFault(error.message, text.split("\n")[error.line - 1] ?? ""), line: error.line };
  }
}

const SHOWN_LENGTH = 60;

function syntaxFault(message: string, line: string): { message: string; hint?: string } {
  const what = message.replace(/^Invalid TOML document: /, "").split("\n")[0]!;
  const found = line.trim().length > SHOWN_LENGTH ? `${line.trim().slice(0, SHOWN_LENGTH)}…` : line.trim();
  const twice = what.includes("redefine");
  return {
    message: `${twice ? "a key or table is defined twice" : what}, found ${
      found === "" ? "the end" : JSON.stringify(found)
    }`,
    ...(twice && { hint: "keep one of the two" }),
  };
}

const lineAt = (text: string, index: number): number => text.slice(0, index).split("\n").length;

const DATE = /(\d{4})-(\d\d)-(\d\d)/y;
const TIME = /(\d{4}-\d\d-\d\d[Tt ])?\d\d:\d\d(:\d\d)?/y;

/** The reader takes 30 February for 2 March; Python knows the years 1 to 9999. */
function inCalendar([, year, month, day]: RegExpExecArray): boolean {
  const date = new Date(Date.UTC(2000, Number(month) - 1, Number(day)));
  date.setUTCFullYear(Number(year), Number(month) - 1, Number(day));
  return year !== "0000" && date.getUTCMonth() === Number(month) - 1 && date.getUTCDate() === Number(day);
}

/**
 * The first thing in a document that our reader takes and Python's TOML 1.0 reader does not: line breaks, comments and
 * trailing commas in inline tables, the escapes `\e` and `\xHH`, times without seconds, days that no calendar has.
 */
function beyondToml10(text: string): { message: string; hint: string; line: number } | undefined {
  const found = (what: string, hint: string, at: number) => ({ message: what, hint, line: lineAt(text, at) });
  const newer = (what: string, hint: string, at: number) => found(`${what}, which TOML 1.0 does not have`, hint, at);
  const nesting: string[] = [];
  let comma = false; // the last thing inside the innermost bracket was a comma
  for (let at = 0; at < text.length; at++) {
    const char = text[at]!;
    if (char === "#") {
      const end = text.indexOf("\n", at);
      at = (end < 0 ? text.length : end) - 1;
    } else if (char === '"' || char === "'") {
      const fence = text.startsWith(char.repeat(3), at) ? char.repeat(3) : char;
      let end = at + fence.length;
      while (end < text.length && !text.startsWith(fence, end)) {
        if (char === '"' && text[end] === "\\") {
          if (text[end + 1] === "e" || text[end + 1] === "x") {
            return newer(`uses the escape \\${text[end + 1]}`, "write \\u00HH", end);
          }
          end++;
        }
        end++;
      }
      // Up to two quotes of the fence's kind may stand right before a closing fence of three.
      while (fence.length === 3 && text[end + 3] === char) end++;
      at = end + fence.length - 1;
      comma = false;
    } else if (char === "{" || char === "[") {
      nesting.push(char);
      comma = false;
    } else if (char === "}" || char === "]") {
      if (char === "}" && comma) return newer("ends an inline table with a comma", "take the comma out", at);
      nesting.pop();
      comma = false;
    } else if (char === "\n") {
      if (nesting.at(-1) === "{") {
        return newer("breaks an inline table over lines", "put it on one line or write a [table]", at);
      }
    } else if (char === ",") {
      comma = true;
    } else if (char >= "0" && char <= "9" && !/[\w.+-]/.test(text[at - 1] ?? "\n")) {
      DATE.lastIndex = TIME.lastIndex = at;
      const date = DATE.exec(text);
      if (date !== null && !inCalendar(date)) {
        return found(`holds ${date[0]}, which no calendar has`, "correct the date", at);
      }
      const time = TIME.exec(text);
      if (time !== null && time[2] === undefined) return newer("holds a time without seconds", "add :00", at);
      if (time !== null) at += time[0].length - 1;
      comma = false;
    } else if (char !== " " && char !== "\t" && char !== "\r") {
      comma = false;
    }
  }
  return undefined;
}

/**
 * The line on which a key (path of names and list indexes) is written, found by a scan that knows table headers and
 * `key =` lines; the line of the nearest table above when the key itself stands inside an inline table. Undefined
 * when nothing of the path is found.
 */
export function lineOfKey(text: string, path: readonly (string | number)[]): number | undefined {
  const wanted = path.map(String);
  const lists = new Map<string, number>();
  let table: string[] = [];
  let best: { line: number; depth: number } | undefined;
  const offer = (at: readonly string[], line: number): void => {
    const depth = at.length;
    if (depth > (best?.depth ?? 0) && at.every((name, index) => name === wanted[index])) best = { line, depth };
  };
  text.split("\n").forEach((raw, index) => {
    const header = /^\s*(\[\[?)\s*([^\]]+?)\s*\]/.exec(raw);
    if (header !== null) {
      const names = keyNames(header[2]!);
      table = [];
      names.forEach((name, depth) => {
        table.push(name);
        const list = table.join("\u0000");
        if (depth === names.length - 1 && header[1] === "[[") lists.set(list, (lists.get(list) ?? -1) + 1);
        if (lists.has(list)) table.push(String(lists.get(list)));
      });
      offer(table, index + 1);
      return;
    }
    const key = /^\s*((?:"(?:[^"\\]|\\.)*"|'[^']*'|[\w-]+)(?:\s*\.\s*(?:"(?:[^"\\]|\\.)*"|'[^']*'|[\w-]+))*)\s*=/.exec(
      raw,
    );
    if (key !== null) offer([...table, ...keyNames(key[1]!)], index + 1);
  });
  return best?.line;
}

function keyNames(dotted: string): string[] {
  return [...dotted.matchAll(/"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s."']+)/g)].map((one) => one[1] ?? one[2] ?? one[3]!);
}
