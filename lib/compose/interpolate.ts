/**
 * Variables in the values of a Compose file (spec/images-and-sandboxes §6.2): `$V`, `${V}`, `${V:-d}`, `${V-d}`,
 * `${V:?m}`, `${V?m}`, `${V:+r}`, `${V+r}`, defaults that hold variables themselves, `$$` for one dollar. Pure.
 */

/** Where values come from. */
export interface Lookup {
  /** Undefined for a name that is not set. */
  get(name: string): string | undefined;
  /** Told of a name that was wanted, is not set and has no default. */
  missing(name: string): void;
}

/** What is wrong with a value; the caller knows whose it is. */
export class TemplateError extends Error {
  override readonly name = "TemplateError";
}

const NAME = /[A-Za-z_][A-Za-z0-9_]*/y;
const OPERATOR = /:?[-?+]/y;

/** `text` with its variables replaced. Throws TemplateError; its message never holds a variable's value. */
export function interpolate(text: string, variables: Lookup): string {
  if (!text.includes("$")) return text;
  let out = "";
  for (let at = 0; at < text.length;) {
    const dollar = text.indexOf("$", at);
    if (dollar < 0) return out + text.slice(at);
    out += text.slice(at, dollar);
    const next = text[dollar + 1];
    if (next === "$") {
      out += "$";
      at = dollar + 2;
    } else if (next === "{") {
      const end = closing(text, dollar + 1);
      out += braced(text.slice(dollar + 2, end), variables);
      at = end + 1;
    } else {
      const name = match(NAME, text, dollar + 1);
      if (name === undefined) {
        throw new TemplateError(
          `has a $ that begins no variable at '${shown(text.slice(dollar))}' (write $$ for one $)`,
        );
      }
      out += plain(name, variables);
      at = dollar + 1 + name.length;
    }
  }
  return out;
}

/** Place of the brace that closes the one at `open`. Braces inside a default count in pairs. */
function closing(text: string, open: number): number {
  let depth = 0;
  for (let at = open; at < text.length; at++) {
    if (text[at] === "{") depth++;
    else if (text[at] === "}" && --depth === 0) return at;
  }
  throw new TemplateError(`has a \${ that nothing closes at '${shown(text.slice(open - 1))}'`);
}

function braced(inner: string, variables: Lookup): string {
  const name = match(NAME, inner, 0);
  const operator = name === undefined ? undefined : match(OPERATOR, inner, name.length);
  if (name === undefined || (operator === undefined && name.length < inner.length)) {
    throw new TemplateError(`has '\${${shown(inner)}}', which is no form of a variable (write $$ for one $)`);
  }
  if (operator === undefined) return plain(name, variables);
  const word = inner.slice(name.length + operator.length);
  const value = variables.get(name);
  const given = value !== undefined && !(operator.startsWith(":") && value === "");
  switch (operator.at(-1)) {
    case "-":
      return given ? whole(name, value) : interpolate(word, variables);
    case "+":
      return given ? interpolate(word, variables) : "";
    default: {
      if (given) return whole(name, value);
      const said = interpolate(word, variables);
      throw new TemplateError(
        `needs the variable ${name}, which is ${value === undefined ? "not set" : "empty"}${
          said === "" ? "" : `: ${said}`
        }`,
      );
    }
  }
}

function plain(name: string, variables: Lookup): string {
  const value = variables.get(name);
  if (value === undefined) variables.missing(name);
  return value === undefined ? "" : whole(name, value);
}

/** A value that is a template itself was meant to be replaced earlier; nobody will do it now. */
function whole(name: string, value: string): string {
  if (/\$\{[^}]*\}/.test(value)) throw new TemplateError(`takes the variable ${name}, whose value still holds a \${…}`);
  return value;
}

function match(pattern: RegExp, text: string, at: number): string | undefined {
  pattern.lastIndex = at;
  return pattern.exec(text)?.[0];
}

const shown = (text: string): string => (text.length > 24 ? `${text.slice(0, 24)}…` : text);
