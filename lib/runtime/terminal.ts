/** What we know about the terminal, and the rule that nothing a task printed can steer it. */
import { fstatSync } from "node:fs";
import process from "node:process";
import type { Terminal } from "../context.ts";

/** Whether `fd` may be a terminal: true for /dev/null too, and cheap (node:tty costs 4 ms of a start in Bun 1.4.5). */
export function maybeTerminal(fd: number): boolean {
  try {
    return fstatSync(fd).isCharacterDevice();
  } catch {
    return false;
  }
}

/** The terminal that stderr may be. Looked at on first use: most starts never ask. */
export function stderrTerminal(env: Readonly<Record<string, string | undefined>>): Terminal {
  let live: boolean | undefined;
  const columns = () => (maybeTerminal(2) && process.stderr.isTTY ? process.stderr.columns ?? 0 : 0);
  return {
    get live() {
      live ??= env.TERM !== "dumb" && !env.CI && columns() > 0;
      return live;
    },
    get columns() {
      return columns() || 80;
    },
  };
}

// deno-lint-ignore no-control-regex -- control characters are what it is about
const UNSAFE = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/g;

/**
 * `text` as a person can see it: control characters, C1 codes and bidirectional overrides become `\x1b`, `\u202e` and so
 * on; line feeds and tabs stay. Whatever came out of a task passes here before it reaches a terminal.
 */
export function visible(text: string): string {
  return text.replace(UNSAFE, (character) => {
    const code = character.charCodeAt(0);
    return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16)}`;
  });
}

/** Signs of ours that a terminal without UTF-8 would garble, and how they are typed. */
const TYPED: Record<string, string> = {
  "…": "...",
  "–": "-",
  "—": "-",
  "·": "-",
  "×": "x",
  "→": "->",
  "≤": "<=",
  "≥": ">=",
  "−": "-",
};

/** Whether the locale is one of UTF-8, by the variable that decides (POSIX: LC_ALL, LC_CTYPE, LANG). */
export function isUtf8Locale(env: Readonly<Record<string, string | undefined>>): boolean {
  return /utf-?8/i.test(env.LC_ALL || env.LC_CTYPE || env.LANG || "");
}

/** How text reaches a terminal with this environment: visible(), and signs typed where the locale is not UTF-8. */
export function terminalText(env: Readonly<Record<string, string | undefined>>): (text: string) => string {
  if (isUtf8Locale(env)) return visible;
  return (text) => visible(text).replace(/[…–—·×→≤≥−]/g, (sign) => TYPED[sign]!);
}
