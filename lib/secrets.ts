/**
 * Values that came from this machine's environment reach no message and no record: each is replaced by `[NAME]`. Short
 * values and names that everybody knows (HOME, USER, …) are left alone, or every path and every digit would be torn up.
 */

const SHORTEST = 4;
const PUBLIC = new Set(
  ["HOME", "USER", "LOGNAME", "PATH", "PWD", "SHELL", "TERM", "LANG", "TMPDIR", "HOSTNAME", "EDITOR", "TZ", "CI"],
);

/** Whether a variable's or key's name says that its value is secret, as NeMo Gym's masking does (tasksets §5.6). */
export const isSecretName = (name: string): boolean =>
  /token|key|header|passw(or)?d|secret|credential|bearer|cookie|authorization/i.test(name);

export type Secret = readonly [value: string, name: string];

/** What of `values` (name → value) is to be replaced; longest first, so that none leaves a part of another behind. */
export function secretsAmong(values: Readonly<Record<string, string>>): Secret[] {
  return Object.entries(values)
    .filter(([name, value]) => value.length >= SHORTEST && !PUBLIC.has(name) && !name.startsWith("LC_"))
    .map(([name, value]): Secret => [value, name])
    .sort(([a], [b]) => b.length - a.length);
}

/** The text with every secret replaced by its name. */
export const withoutSecrets = (text: string, secrets: readonly Secret[]): string =>
  secrets.reduce((seen, [value, name]) => seen.replaceAll(value, () => `[${name}]`), text);
