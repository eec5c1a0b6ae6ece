/**
 * Reads a Dockerfile into its instructions the way BuildKit's parser does (moby/buildkit
 * frontend/dockerfile/parser, 0.13): continuations, comments and blank lines inside them, CRLF, the `escape`
 * directive, heredocs, leading `--flags` and JSON arguments.
 *
 * It knows no instruction's meaning beyond that and refuses nothing: an unknown instruction is an instruction, an
 * unterminated heredoc ends with the file. What a Dockerfile amounts to is decided in dockerfile_mode.ts.
 */

export interface Heredoc {
  /** The terminator without quotes. */
  name: string;
  content: string;
  /** Whether `$` in the content is expanded (no part of the terminator was quoted). */
  expand: boolean;
  /** `<<-`: leading tabs of content and terminator are dropped (already done in `content`). */
  chomp: boolean;
  /** File descriptor written before `<<`, 0 when none. */
  fd: number;
}

export interface Instruction {
  /** Upper case. */
  name: string;
  /** Everything after the name, flags included, continuations joined, trimmed. */
  args: string;
  /** Leading `--name[=value]` words as written. */
  flags: string[];
  /** `args` without the flags. */
  rest: string;
  /** `rest` as a JSON array of strings (exec form), when it is one. */
  json?: string[];
  heredocs: Heredoc[];
  /** First and last line in the file, 1-based. */
  line: number;
  endLine: number;
}

export interface Dockerfile {
  instructions: Instruction[];
  /** Line continuation character: `\`, or a backtick after `# escape=`. */
  escape: string;
}

export interface ParseOptions {
  /** Honour `# escape=`. Default true; the mode of a task (spec/task-format §6.3) reads it as a plain comment. */
  directives?: boolean;
}

/** Parses the whole text; never throws. */
export function parseDockerfile(text: string, { directives = true }: ParseOptions = {}): Dockerfile {
  const lines = text.replace(/^\uFEFF/, "").split("\n");
  if (lines.at(-1) === "") lines.pop();
  const escape = directives ? escapeDirective(lines) : "\\";
  const continued = escape === "\\" ? /(^|[^\\])\\[ \t]*$/ : /(^|[^`])`[ \t]*$/;
  const instructions: Instruction[] = [];
  let at = 0;
  while (at < lines.length) {
    const line = at + 1;
    let text = trimStart(trimNewline(lines[at++]!));
    if (text === "" || text.startsWith("#")) continue;
    let joined = "";
    for (;;) {
      const match = continued.exec(text);
      if (match === null) {
        joined += text;
        break;
      }
      joined += text.slice(0, match.index + match[1]!.length);
      // Comments and blank lines inside a continuation are skipped, whatever stands before them.
      while (at < lines.length && /^\s*(#|$)/.test(trimNewline(lines[at]!))) at++;
      if (at >= lines.length) break;
      text = trimNewline(lines[at++]!);
    }
    if (joined.trim() === "") continue; // a lone continuation character
    const instruction = readInstruction(joined, line, escape);
    if (mayHoldHeredoc(instruction)) {
      for (const heredoc of heredocWords(joined, escape)) {
        const body: string[] = [];
        while (at < lines.length) {
          const raw = heredoc.chomp ? lines[at]!.replace(/^\t+/, "") : lines[at]!;
          at++;
          if (trimNewline(raw) === heredoc.name) break;
          body.push(raw + "\n");
        }
        instruction.heredocs.push({ ...heredoc, content: body.join("") });
      }
    }
    instruction.endLine = at;
    instructions.push(instruction);
  }
  return { instructions, escape };
}

const trimNewline = (line: string): string => line.replace(/\r+$/, "");
const trimStart = (line: string): string => line.replace(/^\s+/, "");

/** The directives stand above everything else, one a line; the first other line ends them. */
function escapeDirective(lines: readonly string[]): string {
  for (const line of lines) {
    const match = /^#\s*([a-zA-Z][a-zA-Z0-9]*)\s*=\s*(.+?)\s*$/.exec(trimNewline(line).trim());
    if (match === null) break;
    if (match[1]!.toLowerCase() === "escape" && (match[2] === "`" || match[2] === "\\")) return match[2];
  }
  return "\\";
}

function readInstruction(joined: string, line: number, escape: string): Instruction {
  const match = /^(\S+)\s*([\s\S]*)$/.exec(joined.trim())!;
  const args = match[2]!;
  const { flags, rest } = splitFlags(args, escape);
  const json = jsonStrings(rest);
  return { name: match[1]!.toUpperCase(), args, flags, rest, ...(json && { json }), heredocs: [], line, endLine: line };
}

/** Takes the leading `--flag` words off; a lone `--` ends them and is dropped. Quotes and escapes stay literal. */
function splitFlags(args: string, escape: string): { flags: string[]; rest: string } {
  const flags: string[] = [];
  let rest = args;
  while (rest.startsWith("--")) {
    const word = firstWord(rest, escape);
    rest = rest.slice(word.length).trimStart();
    if (word === "--") break;
    flags.push(word);
  }
  return { flags, rest };
}

const firstWord = (text: string, escape: string): string => splitWords(text, escape)[0] ?? "";

/** A JSON array of strings, or undefined. BuildKit reads anything else as shell form. */
function jsonStrings(rest: string): string[] | undefined {
  if (!rest.startsWith("[")) return undefined;
  try {
    const value: unknown = JSON.parse(rest);
    return Array.isArray(value) && value.every((one) => typeof one === "string") ? value : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Splits at blanks outside quotes; quotes and escape pairs stay inside the words as written. BuildKit takes a pair
 * together inside either kind of quotes; a shell (`shell: true`) has no escapes inside single ones.
 */
export function splitWords(text: string, escape = "\\", { shell = false } = {}): string[] {
  const words: string[] = [];
  let word = "";
  let quote = "";
  for (let at = 0; at < text.length; at++) {
    const char = text[at]!;
    if (char === escape && !(shell && quote === "'") && at + 1 < text.length) {
      word += char + text[++at];
    } else if (quote !== "") {
      word += char;
      if (char === quote) quote = "";
    } else if (char === " " || char === "\t" || char === "\n" || char === "\r") {
      if (word !== "") words.push(word);
      word = "";
    } else {
      word += char;
      if (char === "'" || char === '"') quote = char;
    }
  }
  if (word !== "") words.push(word);
  return words;
}

const mayHoldHeredoc = (instruction: Instruction): boolean => {
  const name = instruction.name === "ONBUILD" ? firstWord(instruction.rest, "\\").toUpperCase() : instruction.name;
  return ["RUN", "COPY", "ADD"].includes(name) && instruction.json === undefined && instruction.args.includes("<<");
};

/** The heredocs a line opens: whole words `[fd]<<[-]NAME`, NAME bare or quoted. `<<<` and `$((1<<2))` are none. */
export function heredocWords(line: string, escape = "\\"): Omit<Heredoc, "content">[] {
  const found: Omit<Heredoc, "content">[] = [];
  for (const word of splitWords(line, escape, { shell: true })) {
    const match = /^(\d*)<<(-?)([^<]+)$/.exec(word);
    if (match === null) continue;
    const raw = match[3]!;
    const name = raw.replace(
      /'([^']*)'|"((?:[^"\\]|\\.)*)"|\\(.)/g,
      (_, single, double, pair) => single ?? double ?? pair,
    );
    found.push({ name, expand: name === raw, chomp: match[2] === "-", fd: Number(match[1] || 0) });
  }
  return found;
}
