/**
 * Scalars as task.toml's upstream reader takes them: Harbor 0.25.0 validates with pydantic's lax mode, so `"2"`, `2.0`
 * and `true` are whole numbers and `"yes"` is a boolean. Facts: vectors/harbor-0.25.0/task-toml-cases.jsonl.
 *
 * Each function gives the value, or undefined when the input is not one. Integers beyond 2^53 arrive as bigint from
 * the TOML reader and are rounded here; `check --resolved` prints the digits of the file.
 */

const WHOLE = /^[+-]?\d+(\.0+)?$/;
const DECIMAL = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
const NOT_FINITE = /^([+-]?)(inf(?:inity)?|nan)$/i;

/** Text without blanks around it and without single underscores inside; with others it matches no number. */
const digits = (text: string): string => text.trim().replace(/(?<=[^_])_(?=[^_])/g, "");

/** A whole number. */
export function laxInteger(value: unknown): number | undefined {
  if (typeof value === "number") return Number.isInteger(value) && Math.abs(value) < 2 ** 63 ? value : undefined;
  if (typeof value === "bigint") return Number(value);
  if (typeof value === "boolean") return value ? 1 : 0;
  if (typeof value !== "string") return undefined;
  const text = digits(value);
  return WHOLE.test(text) ? Number(text) : undefined;
}

/** A number; NaN and infinities pass. */
export function laxNumber(value: unknown): number | undefined {
  if (typeof value === "number") return value;
  if (typeof value === "bigint") return Number(value);
  if (typeof value === "boolean") return value ? 1 : 0;
  if (typeof value !== "string") return undefined;
  return pythonNumber(value);
}

/** Text as Python's `float()` and pydantic read it. */
function pythonNumber(value: string): number | undefined {
  const text = digits(value);
  if (DECIMAL.test(text)) return Number(text);
  const match = NOT_FINITE.exec(text);
  if (match === null) return undefined;
  if (match[2]!.toLowerCase() === "nan") return NaN;
  return match[1] === "-" ? -Infinity : Infinity;
}

const TRUE = ["1", "true", "t", "yes", "y", "on"];
const FALSE = ["0", "false", "f", "no", "n", "off"];

/** A boolean: also 0, 1 and the usual words in any case. */
export function laxBoolean(value: unknown): boolean | undefined {
  if (typeof value === "boolean") return value;
  if (value === 1 || value === 0) return value === 1;
  if (typeof value !== "string") return undefined;
  const text = value.toLowerCase();
  return TRUE.includes(text) ? true : FALSE.includes(text) ? false : undefined;
}

/**
 * A size such as `2G`, `512M` or `64K` in whole mebibytes, fractions cut off (task-format §2.4); undefined for
 * anything else, infinite sizes included.
 */
export function megabytes(text: string): number | undefined {
  const size = text.trim().toUpperCase();
  const factor = { G: 1024, M: 1, K: 1 / 1024 }[size.at(-1) ?? ""];
  if (factor === undefined) return undefined;
  const amount = pythonNumber(size.slice(0, -1));
  return amount === undefined || !Number.isFinite(amount) ? undefined : Math.trunc(amount * factor) + 0;
}
