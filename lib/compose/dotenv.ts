/**
 * `.env` and `env_file` as Compose reads them: `export` allowed, single quotes literal, double quotes with escapes and
 * variables, both over several lines, a comment after a space. A later line may use what an earlier one set. Pure.
 */
import { interpolate, type Lookup, TemplateError } from "./interpolate.ts";

export interface DotenvOptions {
  variables: Lookup;
  /** `format: raw`: everything after the `=` is the value, to the letter. */
  raw?: boolean;
}

/** What is wrong with the file: `<line>: <what>`. */
export class DotenvError extends Error {
  override readonly name = "DotenvError";
  constructor(readonly line: number, what: string) {
    super(`line ${line} ${what}`);
  }
}

const KEY = /^(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*(?:([=:])[ \t]*|$)/;
const ESCAPES: Record<string, string> = { n: "\n", r: "\r", t: "\t", f: "\f", b: "\b", v: "\v", a: "\x07" };

/**
 * Variables of the file in order; null for a name without a value, which passes the environment's on. Throws DotenvError.
 */
export function parseDotenv(text: string, { variables, raw = false }: DotenvOptions): Map<string, string | null> {
  const values = new Map<string, string | null>();
  const lookup: Lookup = {
    get: (name) => variables.get(name) ?? values.get(name) ?? undefined,
    missing: (name) => variables.missing(name),
  };
  const lines = text.replace(/^\uFEFF/, "").split(/\r?\n/);
  for (let at = 0; at < lines.length; at++) {
    const line = lines[at]!.trimStart();
    if (line === "" || line.startsWith("#")) continue;
    const found = KEY.exec(raw ? line.replace(/^([^=]*?)\s*$/, "$1") : line.trimEnd());
    if (found === null) throw new DotenvError(at + 1, "is neither NAME=value nor a comment");
    const [head, name, sign] = found as unknown as [string, string, string | undefined];
    if (sign === undefined) {
      values.set(name, null);
      continue;
    }
    if (raw) {
      values.set(name, line.slice(line.indexOf(sign) + 1));
      continue;
    }
    const rest = line.slice(head.length);
    const quote = rest[0];
    try {
      if (quote === '"' || quote === "'") {
        const read = quoted(lines, at, rest, quote);
        values.set(name, quote === "'" ? read.text : interpolate(read.text, lookup));
        at = read.line;
      } else {
        values.set(name, interpolate(rest.replace(/(?:^|\s)#.*$/, "").trim(), lookup));
      }
    } catch (error) {
      if (error instanceof TemplateError) throw new DotenvError(at + 1, `(${name}) ${error.message}`);
      throw error;
    }
  }
  return values;
}

/** The text between quotes, which may end on a later line. */
function quoted(lines: readonly string[], first: number, rest: string, quote: string): { text: string; line: number } {
  let text = "";
  let piece = rest.slice(1);
  for (let line = first;;) {
    for (let at = 0; at < piece.length; at++) {
      const letter = piece[at]!;
      if (letter === quote) {
        const after = piece.slice(at + 1).trim();
        if (after !== "" && !after.startsWith("#")) throw new DotenvError(line + 1, "goes on after its closing quote");
        return { text, line };
      }
      const next = piece[at + 1];
      if (quote === "'" || letter !== "\\" || next === undefined) text += letter;
      else {
        // An escaped dollar stays one through the replacement of variables that follows.
        text += next === "$" ? "$$" : ESCAPES[next] ?? (next === quote || next === "\\" ? next : letter + next);
        at++;
      }
    }
    if (++line >= lines.length) throw new DotenvError(first + 1, `opens a ${quote} that nothing closes`);
    text += "\n";
    piece = lines[line]!;
  }
}
