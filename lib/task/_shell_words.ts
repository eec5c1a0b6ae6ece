/**
 * A shell script as simple commands with their lines, well enough to see which programs it starts: quotes, escapes,
 * comments, continuations, heredocs, substitutions. It is no shell: variables stay as they are written, and nothing is
 * ever refused. Pure.
 */

export interface SimpleCommand {
  /** Words without their quotes; redirections left out. */
  words: string[];
  /** 1-based line of its first word. */
  line: number;
  /** Text of a heredoc that it reads, and the line it begins on. */
  input?: { text: string; line: number };
  /** Files that its output is written to. */
  writes: string[];
}

const SEPARATORS = new Set([";", "&", "|", "(", ")", "\n"]);

/** Nobody nests substitutions deeper on purpose; what lies below is not looked at. */
const DEEPEST_SUBSTITUTION = 20;

export function simpleCommands(script: string): SimpleCommand[] {
  return new Reader(script, 0).read();
}

class Reader {
  readonly #commands: SimpleCommand[] = [];
  #at = 0;
  #line = 1;
  #words: string[] = [];
  #word = "";
  #inWord = false;
  #wordLine = 1;
  #commandLine = 1;
  /** What the next word is: an operand of a redirection, or the name that ends a heredoc. */
  #next: "word" | "write" | "read" | "heredoc" | "heredoc-tabs" = "word";
  #writes: string[] = [];
  #pending: { name: string; tabs: boolean; command: number }[] = [];

  constructor(private readonly text: string, private readonly depth: number) {}

  read(): SimpleCommand[] {
    while (this.#at < this.text.length) this.#step(this.text[this.#at]!);
    this.#endCommand();
    return this.#commands.filter(({ words }) => words.length > 0);
  }

  #step(char: string): void {
    const { text } = this;
    if (char === "\\") {
      const next = text[this.#at + 1];
      this.#at += 2;
      if (next === "\n") this.#line++;
      else if (next !== undefined) this.#add(next);
    } else if (char === "'") {
      const end = text.indexOf("'", this.#at + 1);
      this.#addText(text.slice(this.#at + 1, end < 0 ? text.length : end));
      this.#at = end < 0 ? text.length : end + 1;
    } else if (char === '"') {
      this.#quoted();
    } else if (char === "`" || text.startsWith("$(", this.#at)) {
      this.#substitution(char === "`");
    } else if (char === "#" && !this.#inWord) {
      while (this.#at < text.length && text[this.#at] !== "\n") this.#at++;
    } else if (char === "<" || char === ">") {
      this.#redirection();
    } else if (char === " " || char === "\t" || char === "\r") {
      this.#endWord();
      this.#at++;
    } else if (char === "&" && (text[this.#at + 1] === ">" || "<>".includes(text[this.#at - 1] ?? " "))) {
      this.#at++; // &> and >&: the redirection around it is what counts
    } else if (SEPARATORS.has(char)) {
      this.#endCommand();
      this.#at++;
      if (char === "\n") {
        this.#line++;
        this.#heredocs();
      }
    } else {
      this.#at++;
      this.#add(char);
    }
  }

  #add(char: string): void {
    if (!this.#inWord) this.#wordLine = this.#line;
    this.#inWord = true;
    this.#word += char;
  }

  #addText(text: string): void {
    this.#add("");
    this.#word += text;
    this.#line += text.split("\n").length - 1;
  }

  /** Inside double quotes only a substitution is code. */
  #quoted(): void {
    this.#add("");
    this.#at++;
    while (this.#at < this.text.length && this.text[this.#at] !== '"') {
      const char = this.text[this.#at]!;
      if (char === "\\" && this.#at + 1 < this.text.length) {
        const next = this.text[this.#at + 1]!;
        if (next === "\n") this.#line++;
        else this.#word += '"\\$`'.includes(next) ? next : `\\${next}`;
        this.#at += 2;
      } else if (char === "`" || this.text.startsWith("$(", this.#at)) {
        this.#substitution(char === "`");
      } else {
        if (char === "\n") this.#line++;
        this.#word += char;
        this.#at++;
      }
    }
    this.#at++;
  }

  /** `$(…)` and backquotes: their commands are commands of the script; the word keeps a `$`. */
  #substitution(back: boolean): void {
    const from = this.#at + (back ? 1 : 2);
    const end = back ? this.text.indexOf("`", from) : closing(this.text, from);
    const inside = this.text.slice(from, end < 0 ? this.text.length : end);
    const isArithmetic = inside.startsWith("("); // `$((…))`
    if (!isArithmetic && this.depth < DEEPEST_SUBSTITUTION) {
      const commands = new Reader(inside, this.depth + 1).read();
      for (const one of commands) this.#commands.push({ ...one, line: one.line + this.#line - 1 });
    }
    this.#add("$");
    this.#line += inside.split("\n").length - 1;
    this.#at = end < 0 ? this.text.length : end + 1;
  }

  #redirection(): void {
    const { text } = this;
    if (/^\d+$/.test(this.#word)) this.#dropWord();
    this.#endWord();
    if (text.startsWith("<<<", this.#at)) {
      this.#at += 3; // its word is data, which stays among the words
    } else if (text.startsWith("<<", this.#at)) {
      const tabs = text[this.#at + 2] === "-";
      this.#next = tabs ? "heredoc-tabs" : "heredoc";
      this.#at += tabs ? 3 : 2;
    } else if (text.startsWith("<(", this.#at) || text.startsWith(">(", this.#at)) {
      this.#at++; // the parenthesis begins a command of its own
    } else {
      this.#next = text[this.#at] === ">" ? "write" : "read";
      this.#at += text[this.#at + 1] === ">" || text[this.#at + 1] === "&" || text[this.#at + 1] === "|" ? 2 : 1;
    }
  }

  #dropWord(): void {
    this.#word = "";
    this.#inWord = false;
  }

  #endWord(): void {
    if (!this.#inWord) return;
    const word = this.#word;
    this.#dropWord();
    const kind = this.#next;
    this.#next = "word";
    if (kind === "write") this.#writes.push(word);
    else if (kind === "heredoc" || kind === "heredoc-tabs") {
      this.#pending.push({ name: word, tabs: kind === "heredoc-tabs", command: -1 });
    } else if (kind === "word") {
      if (this.#words.length === 0) this.#commandLine = this.#wordLine;
      this.#words.push(word);
    }
  }

  #endCommand(): void {
    this.#endWord();
    this.#next = "word";
    for (const heredoc of this.#pending) if (heredoc.command < 0) heredoc.command = this.#commands.length;
    if (this.#words.length > 0 || this.#pending.some(({ command }) => command === this.#commands.length)) {
      this.#commands.push({ words: this.#words, line: this.#commandLine, writes: this.#writes });
    }
    this.#words = [];
    this.#writes = [];
  }

  /** The bodies of the heredocs that the line before opened. */
  #heredocs(): void {
    for (const { name, tabs, command } of this.#pending.splice(0)) {
      const line = this.#line;
      let body = "";
      while (this.#at < this.text.length) {
        const end = this.text.indexOf("\n", this.#at);
        const one = this.text.slice(this.#at, end < 0 ? this.text.length : end);
        this.#at = end < 0 ? this.text.length : end + 1;
        this.#line++;
        if ((tabs ? one.replace(/^\t+/, "") : one) === name) break;
        body += `${one}\n`;
      }
      const reader = this.#commands[command];
      if (reader !== undefined) reader.input = { text: body, line };
    }
  }
}

/** Index of the `)` that closes what begins at `from`; -1 without one. */
function closing(text: string, from: number): number {
  let depth = 1;
  for (let at = from; at < text.length; at++) {
    const char = text[at];
    if (char === "\\") at++;
    else if (char === "'") {
      const end = text.indexOf("'", at + 1);
      if (end < 0) return -1;
      at = end;
    } else if (char === "(") depth++;
    else if (char === ")" && --depth === 0) return at;
  }
  return -1;
}
