/**
 * Texts of a Compose file that stand for something else: durations, sizes, numbers, booleans, command lines
 * (compose-spec; field case F2). Each reader is pure and answers undefined for what is none.
 */
import { splitWords } from "../task/dockerfile.ts";
import { isScalarValue, type Value } from "./document.ts";

/** A scalar as text; undefined for null, lists and tables. */
export function asText(value: Value | undefined): string | undefined {
  return value === undefined || value === null || !isScalarValue(value) ? undefined : String(value);
}

/** `2`, `"2"`, `1.5`. */
export function asNumber(value: Value | undefined): number | undefined {
  const text = asText(value)?.trim();
  return text !== undefined && /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text) ? Number(text) : undefined;
}

/** A whole number. */
export function asInteger(value: Value | undefined): number | undefined {
  const number = asNumber(value);
  return number !== undefined && Number.isSafeInteger(number) ? number : undefined;
}

/** `true`, `"yes"`, `on`, `1` … as YAML 1.1 and Compose have them. */
export function asBoolean(value: Value | undefined): boolean | undefined {
  const text = asText(value)?.trim().toLowerCase() ?? "";
  if (["true", "yes", "y", "on", "1"].includes(text)) return true;
  return ["false", "no", "n", "off", "0"].includes(text) ? false : undefined;
}

const UNIT_MS: Record<string, number> = {
  ns: 1e-6,
  us: 1e-3,
  "µs": 1e-3,
  "μs": 1e-3,
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
};

/** Milliseconds of `1m30.5s`, `500ms`, `0`. A number without a unit is no duration. */
export function asDuration(value: Value | undefined): number | undefined {
  const text = asText(value)?.trim();
  if (text === "0") return 0;
  const parts = text === undefined ? null : /^(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+$/.exec(text);
  if (parts === null) return undefined;
  let ms = 0;
  for (const [, number, unit] of text!.matchAll(/([\d.]+)([a-zµμ]+)/g)) ms += Number(number) * UNIT_MS[unit!]!;
  return Math.round(ms * 1e6) / 1e6;
}

const SIZE_POWER: Record<string, number> = { "": 0, k: 1, m: 2, g: 3, t: 4, p: 5 };

/** Bytes of `64m`, `1.5GB`, `512MiB`, `1048576`: units are powers of 1024, as Docker has them. */
export function asBytes(value: Value | undefined): number | undefined {
  const found = /^(\d+\.?\d*|\.\d+) ?([kmgtp]?)(?:i?b)?$/i.exec(asText(value)?.trim() ?? "");
  return found === null ? undefined : Math.floor(Number(found[1]) * 1024 ** SIZE_POWER[found[2]!.toLowerCase()]!);
}

/** The words of a command line: blanks part them, quotes and backslashes keep together; nothing is expanded. */
export function asWords(text: string): string[] | undefined {
  const words = splitWords(text, "\\", { shell: true }).map(withoutQuotes);
  return words.every((one) => one !== undefined) ? words as string[] : undefined;
}

function withoutQuotes(word: string): string | undefined {
  let out = "";
  for (let at = 0; at < word.length; at++) {
    const letter = word[at]!;
    if (letter === "'") {
      const end = word.indexOf("'", at + 1);
      if (end < 0) return undefined;
      out += word.slice(at + 1, end);
      at = end;
    } else if (letter === '"') {
      for (at++; word[at] !== '"'; at++) {
        if (at >= word.length) return undefined;
        if (word[at] === "\\" && /["\\$`]/.test(word[at + 1] ?? "")) at++;
        out += word[at];
      }
    } else if (letter === "\\") {
      if (++at >= word.length) return undefined;
      if (word[at] !== "\n") out += word[at];
    } else out += letter;
  }
  return out;
}
