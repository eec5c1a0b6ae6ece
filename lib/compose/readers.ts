/** Values of one key as the type it needs, or a refusal that says what was found and what is wanted. */
import { nearest } from "../suggest.ts";
import { isTable, type Table, type Value } from "./document.ts";
import type { Field } from "./refusals.ts";
import { asBoolean, asBytes, asDuration, asInteger, asNumber, asText } from "./scalars.ts";

const found = (value: Value): string =>
  Array.isArray(value) ? "a list" : isTable(value) ? "a table" : value === null ? "empty" : `'${String(value)}'`;

function reader<T>(wanted: string, read: (value: Value) => T | undefined) {
  return (value: Value, field: Field): T | undefined => {
    const made = read(value);
    if (made === undefined) field.refuse(`is ${found(value)}, must be ${wanted}`);
    return made;
  };
}

export const readText = reader("text", asText);
export const readBoolean = reader("true or false", asBoolean);
export const readBytes = reader("a size such as 64m", asBytes);
export const readDuration = reader("a duration with its unit, such as 1m30s", asDuration);
/** Zero or more. */
export const readCount = reader("a whole number, 0 or more", (value) => {
  const number = asInteger(value);
  return number !== undefined && number >= 0 ? number : undefined;
});
export const readAmount = reader("a number above 0", (value) => {
  const number = asNumber(value);
  return number !== undefined && number > 0 ? number : undefined;
});
export const readTable = reader("a table", (value) => (isTable(value) ? value : undefined));

/** A list of texts; one text alone is a list of one. */
export function readTexts(value: Value, field: Field): string[] {
  const list = Array.isArray(value) ? value : [value];
  return list.flatMap((one, index) => readText(one, Array.isArray(value) ? field.at(index) : field) ?? []);
}

/** Texts by name, nothing for an empty value. */
export function readTextTable(value: Value, field: Field): Record<string, string> {
  const entries = Object.entries(readTable(value, field) ?? {});
  return Object.fromEntries(entries.map(([key, one]) => [key, one === null ? "" : readText(one, field.at(key)) ?? ""]));
}

/** Refuses the keys of `table` that are not among `known`. */
export function refuseOthers(table: Table, known: readonly string[], field: Field): void {
  for (const key of Object.keys(table)) {
    if (known.includes(key) || key.startsWith("x-") || isVoid(table[key]!)) continue;
    const near = nearest(key, known);
    field.at(key).refuse(`is not supported${near === undefined ? "" : ` (did you mean ${near}?)`}`);
  }
}

/** A value that asks for nothing: as good as a key that is not there. */
export const isVoid = (value: Value): boolean =>
  value === null || value === "" || value === false || (Array.isArray(value) && value.length === 0) ||
  (isTable(value) && Object.keys(value).length === 0);
