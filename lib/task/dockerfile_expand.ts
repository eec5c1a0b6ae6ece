/**
 * Variables in a Dockerfile's words, the way BuildKit expands them (moby/buildkit frontend/dockerfile/shell, 0.13): quotes
 * and escapes, `$NAME`, and `${NAME}` with `:-` `-` `:+` `+` `:?` `?` `#` `##` `%` `%%` `/` `//`.
 *
 * The mode of a task's Dockerfile knows fewer forms (spec/task-format §6.3) and has a reader of its own,
 * dockerfile_mode.ts: what that one does not know is a reason to build.
 */
import { HarborError } from "../errors.ts";

export interface ExpandOptions {
  /** Character that takes the next one's meaning. Default `\`. */
  escape?: string;
  /** false: quotes are ordinary characters, as in the text of a heredoc. Default true. */
  quotes?: boolean;
  /** Is told each name that has no value. */
  unset?: (name: string) => void;
}

/** Throws HarborError "task.invalid" for a substitution that BuildKit refuses. */
export function expandText(
  text: string,
  variables: Readonly<Record<string, string>>,
  { escape = "\\", quotes = true, unset = () => {} }: ExpandOptions = {},
): string {
  return new Expander(text, variables, escape, quotes, unset).until(undefined, false);
}

class Expander {
  readonly #chars: string[];
  #at = 0;

  constructor(
    private readonly text: string,
    private readonly variables: Readonly<Record<string, string>>,
    private readonly escape: string,
    private readonly quotes: boolean,
    private readonly unset: (name: string) => void,
  ) {
    this.#chars = [...text];
  }

  /** Up to `stop`, which is taken, or to the end. `raw` keeps the escapes, for a pattern. */
  until(stop: string | undefined, raw: boolean): string {
    let result = "";
    while (this.#at < this.#chars.length) {
      const char = this.#chars[this.#at]!;
      if (char === stop) {
        this.#at++;
        return result;
      }
      if (char === "$") result += this.#dollar();
      else if (char === "'" && this.quotes) result += this.#single();
      else if (char === '"' && this.quotes) result += this.#double();
      else {
        this.#at++;
        if (char !== this.escape) result += char;
        else result += (raw ? char : "") + (this.#chars[this.#at++] ?? "");
      }
    }
    if (stop !== undefined) this.#refuse(`no closing ${stop}`);
    return result;
  }

  #single(): string {
    const end = this.#chars.indexOf("'", this.#at + 1);
    if (end < 0) this.#refuse("no closing single quote");
    const inner = this.#chars.slice(this.#at + 1, end).join("");
    this.#at = end + 1;
    return inner;
  }

  #double(): string {
    let result = "";
    this.#at++;
    for (;;) {
      const char = this.#chars[this.#at];
      if (char === undefined) this.#refuse("no closing double quote");
      if (char === "$") {
        result += this.#dollar();
        continue;
      }
      this.#at++;
      if (char === '"') return result;
      const next = this.#chars[this.#at];
      const escaped = char === this.escape && (next === '"' || next === "$" || next === this.escape);
      if (char === this.escape && next === undefined) continue;
      result += escaped ? next : char;
      if (escaped) this.#at++;
    }
  }

  #dollar(): string {
    this.#at++;
    if (this.#chars[this.#at] !== "{") {
      const name = this.#name();
      return name === "" ? "$" : this.#value(name) ?? "";
    }
    this.#at++;
    const first = this.#chars[this.#at];
    if (first === undefined || "{}:".includes(first)) this.#refuse("bad substitution");
    const name = this.#name();
    let operator = this.#chars[this.#at++];
    if (operator === "}") return this.#value(name) ?? "";
    const emptyIsUnset = operator === ":";
    if (emptyIsUnset) operator = this.#chars[this.#at++];
    switch (operator) {
      case "-":
      case "+":
      case "?":
        return this.#conditional(name, operator, emptyIsUnset);
      case "#":
      case "%":
        return this.#trimmed(name, operator);
      case "/":
        return this.#replaced(name);
      default:
        return this.#refuse(`unsupported modifier ${operator ?? ""} in \${${name}…}`);
    }
  }

  #conditional(name: string, operator: "-" | "+" | "?", emptyIsUnset: boolean): string {
    const word = this.until("}", false);
    const value = this.#value(name);
    const present = value !== undefined && !(emptyIsUnset && value === "");
    if (operator === "+") return present ? word : "";
    if (present) return value;
    if (operator === "-") return word;
    return this.#refuse(`${name}: ${word || `is not allowed to be ${value === undefined ? "unset" : "empty"}`}`);
  }

  #trimmed(name: string, operator: "#" | "%"): string {
    let pattern = this.until("}", true);
    const longest = pattern.startsWith(operator);
    if (longest) pattern = pattern.slice(1);
    const value = this.#value(name) ?? "";
    const expression = this.#pattern(pattern);
    const ends = Array.from({ length: value.length + 1 }, (_, at) => at);
    const cut = operator === "#"
      ? (longest ? ends.reverse() : ends).find((at) => expression.test(value.slice(0, at)))
      : (longest ? ends : ends.reverse()).find((at) => expression.test(value.slice(at)));
    if (cut === undefined) return value;
    return operator === "#" ? value.slice(cut) : value.slice(0, cut);
  }

  #replaced(name: string): string {
    const all = this.#chars[this.#at] === "/";
    if (all) this.#at++;
    const pattern = this.until("/", true);
    const replacement = this.until("}", true);
    const source = this.#pattern(pattern).source.slice(1, -1);
    return (this.#value(name) ?? "").replace(new RegExp(source, all ? "gs" : "s"), () => replacement);
  }

  /** `*` and `?` as in a shell, no bracket expressions; `\` before `*`, `?`, `\`, `}` and `/` only. */
  #pattern(pattern: string): RegExp {
    let source = "";
    for (let at = 0; at < pattern.length; at++) {
      let char = pattern[at]!;
      if (char === "*") source += ".*";
      else if (char === "?") source += ".";
      else {
        if (char === "\\") {
          char = pattern[++at] ?? "";
          if (!"*?\\}/".includes(char) || char === "") this.#refuse(`invalid escape \\${char} in a pattern`);
        }
        source += char.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
      }
    }
    return new RegExp(`^${source}$`, "s");
  }

  #name(): string {
    const rest = this.#chars.slice(this.#at).join("");
    const name = /^(?:\d+|[@*#?\-$!]|[\p{L}_][\p{L}\d_]*)/u.exec(rest)?.[0] ?? "";
    this.#at += [...name].length;
    return name;
  }

  #value(name: string): string | undefined {
    if (Object.hasOwn(this.variables, name)) return this.variables[name];
    this.unset(name);
    return undefined;
  }

  #refuse(why: string): never {
    throw new HarborError("task.invalid", `Cannot expand '${this.text}': ${why}`);
  }
}
