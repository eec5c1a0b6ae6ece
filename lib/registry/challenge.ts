/** What a 401 asks for: the `WWW-Authenticate` header (RFC 9110 §11.6.1, Docker's registry token scheme). Pure. */

export interface Challenge {
  /** Lower case: `bearer`, `basic`. */
  scheme: string;
  /** Names in lower case; values without their quotes. */
  parameters: Record<string, string>;
}

const TOKEN = String.raw`[!#$%&'*+.^_\`|~0-9A-Za-z-]+`;
const PARAMETER = new RegExp(String.raw`^[\s,]*(${TOKEN})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,]*))`);
const SCHEME = new RegExp(String.raw`^[\s,]*(${TOKEN})(?=\s|,|$)`);

/** All challenges of a header in order; several headers arrive joined by commas. What cannot be read ends the list. */
export function parseChallenges(header: string): Challenge[] {
  const challenges: Challenge[] = [];
  let rest = header;
  while (rest.trim() !== "") {
    // `key = value` before `scheme`: a scheme is never followed by an equals sign.
    const parameter = PARAMETER.exec(rest);
    if (parameter !== null && challenges.length > 0) {
      const [, name, quoted, plain] = parameter;
      challenges.at(-1)!.parameters[name!.toLowerCase()] = quoted?.replace(/\\(.)/g, "$1") ?? plain!;
      rest = rest.slice(parameter[0].length);
      continue;
    }
    const scheme = SCHEME.exec(rest);
    if (scheme === null) break;
    challenges.push({ scheme: scheme[1]!.toLowerCase(), parameters: {} });
    rest = rest.slice(scheme[0].length);
  }
  return challenges;
}
