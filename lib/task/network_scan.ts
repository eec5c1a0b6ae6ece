/**
 * Which lines of a task fetch something while it runs: installers and downloads in its tests, its solution and the RUN
 * lines that are replayed at seed. Such a task needs a network wherever its images come from, so a bundle says it by
 * file and line. Read, never run; comments and what is only printed do not count, code that is never reached does. Pure.
 */
import { isElsewhere, whyFetches } from "./_fetchers.ts";
import { type SimpleCommand, simpleCommands } from "./_shell_words.ts";

export interface NetworkUse {
  /** 1-based. */
  line: number;
  /** The command or call, shortened. */
  why: string;
}

export type Language = "shell" | "python" | "other";

/** By the file's name, else its first line; undefined for what is no program (data, prose). */
export function languageOf(path: string, head: string): Language | undefined {
  const name = path.slice(path.lastIndexOf("/") + 1);
  const program = interpreter(head);
  if (/\.(?:sh|bash|zsh|ksh|bats)$/.test(name) || /^(?:ba|da|z|k|)sh$/.test(program ?? "")) return "shell";
  if (/\.(?:py|pyw)$/.test(name) || program === "python") return "python";
  if (/^(?:GNU)?[Mm]akefile$|\.mk$/.test(name)) return "shell";
  if (/\.(?:js|mjs|cjs|ts|rb|pl|R|r|jl|php|go|rs|lua)$/.test(name) || program !== undefined) return "other";
  return undefined;
}

/** Name of the program in a first line `#!…`, without its version. */
function interpreter(head: string): string | undefined {
  const words = /^#!\s*([^\n\r]*)/.exec(head)?.[1]?.split(/\s+/).map((word) => word.slice(word.lastIndexOf("/") + 1));
  const program = words?.[0] === "env" ? words.slice(1).find((word) => !/^-|=/.test(word)) : words?.[0];
  return program?.replace(/[0-9.]+$/, "");
}

/** In the order of their lines, at most one for a line. */
export function networkUses(text: string, language: Language): NetworkUse[] {
  const found = language === "shell" ? inShell(text) : inProgram(text, language === "python");
  const byLine = new Map<number, NetworkUse>();
  for (const use of found) if (!byLine.has(use.line)) byLine.set(use.line, { ...use, why: shortened(use.why) });
  return [...byLine.values()].sort((a, b) => a.line - b.line);
}

const LONGEST = 120;
const shortened = (text: string): string => {
  const one = text.replace(/\s+/g, " ");
  return one.length > LONGEST ? `${one.slice(0, LONGEST - 1)}…` : one;
};

/** Words that stand before the command that counts. */
const BEFORE =
  /^(?:[A-Za-z_]\w*\+?=.*|sudo|env|exec|time|nohup|command|builtin|then|do|else|elif|if|while|until|!|\{|xargs|nice|stdbuf|@?-?@?)$/;
const PRINTS = new Set(["echo", "printf", ":", "true", "false", "type", "which", "hash", "alias", "grep", "sed"]);
const SHELL = /^(?:.*\/)?(?:ba|da|z|k|)sh$/;

const DEEPEST = 5;

function inShell(script: string, depth = 0): NetworkUse[] {
  if (depth > DEEPEST) return [];
  return simpleCommands(script).flatMap((command) => usesOf(command, depth));
}

function usesOf({ words: all, line, input, writes }: SimpleCommand, depth: number): NetworkUse[] {
  const words = withoutPrefix(all);
  const [program = "", ...rest] = words;
  const at = (uses: NetworkUse[], first: number): NetworkUse[] =>
    uses.map((use) => ({ ...use, line: use.line + first - 1 }));
  const nested: NetworkUse[] = [];
  if (input !== undefined) {
    const runs = SHELL.test(program) || writes.some((path) => /\.(?:sh|bash)$/.test(path)) ||
      rest.some((word) => /\.(?:sh|bash)$/.test(word)); // tee setup.sh
    const python = /python[0-9.]*$/.test(program) || [...writes, ...rest].some((path) => path.endsWith(".py"));
    if (runs) nested.push(...at(inShell(input.text, depth + 1), input.line));
    else if (python) nested.push(...at(inProgram(input.text, true), input.line));
  }
  if (PRINTS.has(program)) return nested;
  const code = SHELL.test(program) || program === "su" || program === "eval"
    ? program === "eval" ? rest.join(" ") : rest[rest.findIndex((word) => /^-\w*c$/.test(word)) + 1]
    : undefined;
  const hasCode = program === "eval" || rest.some((word) => /^-\w*c$/.test(word));
  if (code !== undefined && hasCode) return [...nested, ...at(inShell(code, depth + 1), line)];
  if (/^(?:.*\/)?python[0-9.]*$/.test(program)) {
    const flag = rest.findIndex((word) => word === "-c" || word === "-m");
    if (rest[flag] === "-c") return [...nested, ...at(inProgram(rest[flag + 1] ?? "", true), line)];
    if (rest[flag] !== "-m") return nested;
    const why = whyFetches(rest.slice(flag + 1));
    return why === undefined ? nested : [...nested, { line, why: `python -m ${why}` }];
  }
  const why = whyFetches(words);
  return why === undefined ? nested : [...nested, { line, why }];
}

function withoutPrefix(words: readonly string[]): string[] {
  let at = 0;
  while (at < words.length) {
    const word = words[at]!;
    if (/^(?:.*\/)?timeout$/.test(word)) {
      at++;
      while (/^-/.test(words[at] ?? "")) at += /^-[ks]$/.test(words[at]!) ? 2 : 1;
      at++; // the duration
    } else if (BEFORE.test(word)) {
      at++;
      while (/^-/.test(words[at] ?? "") && ["sudo", "env", "xargs", "nice", "exec", "stdbuf", "time"].includes(word)) {
        at += /^-[unILPd]$/.test(words[at]!) ? 2 : 1;
      }
    } else break;
  }
  return words.slice(at);
}

const CALLS =
  /\b(?:subprocess\.\w+|os\.(?:system|popen|exec\w*)|check_(?:call|output)|getoutput|Popen|run|call|system|exec(?:Sync|File|FileSync)?|spawn(?:Sync)?|sh|pexpect\.\w+)\s*\(/;
const STRING = /"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\\n]|\\.)*`/g;
const FETCHING_CALL =
  /\b(?:requests|httpx|session|client|urllib\.request|request|axios|aiohttp|http|https|fetch|urlopen|urlretrieve|download\w*|wget|curl)\b[\w.]*\s*\(/i;
const KNOWN_FETCHES =
  /\b(?:nltk\.download|load_dataset|hf_hub_download|snapshot_download|torch\.hub\.load|kagglehub\.\w+|install\.packages|Pkg\.add|gdown\.download|fetch_openml|fetch_20newsgroups)\s*\(/;
const PRETRAINED = /\bfrom_pretrained\s*\(\s*["'][\w.-]+\/[\w.-]+["']/;

/** No line that a person wrote is longer; the patterns below take time that grows faster than a line. */
const LONGEST_LINE = 4096;

/** Line by line: started programs, calls that fetch an address elsewhere, libraries that are known to download. */
function inProgram(text: string, python: boolean): NetworkUse[] {
  const uses: NetworkUse[] = [];
  let quoted = "";
  text.split("\n").forEach((whole, index) => {
    const line = index + 1;
    const before = quoted;
    if (python) quoted = docstring(whole, quoted);
    if (before !== "" || (quoted !== "" && /^\s*[rRbBuUfF]*("""|''')/.test(whole))) return;
    const code = withoutComment(whole.slice(0, LONGEST_LINE), python);
    const strings = [...code.matchAll(STRING)].map(([one]) => one.slice(1, -1));
    if (strings.length === 0 && !KNOWN_FETCHES.test(code)) return;
    const why = (CALLS.test(code) || /^\s*\[?\s*["']/.test(code) ? startsFetcher(code, strings) : undefined) ??
      (FETCHING_CALL.test(code) ? strings.find(isElsewhere) : undefined) ??
      KNOWN_FETCHES.exec(code)?.[0].replace(/\s*\($/, "") ??
      (PRETRAINED.test(code) ? "from_pretrained" : undefined);
    if (why !== undefined) uses.push({ line, why });
  });
  return uses;
}

/** A list of words (`["pip", "install", "x"]`), or one string that a shell gets. */
function startsFetcher(code: string, strings: readonly string[]): string | undefined {
  if (/\b(?:print|log(?:ger)?(?:\.\w+)?|console\.\w+|puts|assert)\b\s*\(?\s*f?["'`]/.test(code)) return undefined;
  for (const [at, one] of strings.entries()) {
    const found = one.includes(" ")
      ? inShell(one, 1)[0]?.why
      : at === 0 || strings[at - 1] === "-m" || /^(?:sudo|env)$/.test(strings[at - 1]!)
      ? whyFetches(strings.slice(at))
      : undefined;
    if (found !== undefined) return found;
  }
  return undefined;
}

/** The quotes of a string over several lines that is open after this line; "" for none. */
function docstring(line: string, open: string): string {
  let now = open;
  for (const [quotes] of line.matchAll(/"""|'''/g)) {
    if (now === "") now = quotes;
    else if (now === quotes) now = "";
  }
  return now;
}

function withoutComment(line: string, python: boolean): string {
  if (!python) return /^\s*(?:\/\/|#|\*|--|%)/.test(line) ? "" : line.replace(/\s\/\/\s.*$/, "");
  let quote = "";
  for (let at = 0; at < line.length; at++) {
    const char = line[at]!;
    if (quote !== "") {
      if (char === "\\") at++;
      else if (char === quote) quote = "";
    } else if (char === "'" || char === '"') quote = char;
    else if (char === "#") return line.slice(0, at);
  }
  return line;
}
