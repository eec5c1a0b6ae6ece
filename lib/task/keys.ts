/**
 * What a zod schema knows about keys, as a table that can be walked beside a document: which keys exist, which values
 * are the defaults, what lies below. Derived once per schema, so that schema.ts stays the only place that names keys.
 */
import type { z } from "zod";
import { nearest } from "../suggest.ts";

export interface KeyTable {
  keys: Map<string, Key>;
}

export interface Key {
  /** The value that absence means, if there is one. */
  default?: unknown;
  deprecated: boolean;
  /** Keys of the table (or of each table in the list) that this key holds. */
  below?: KeyTable;
}

/** The key table of an object schema. */
export function keyTable(schema: z.ZodType): KeyTable {
  const keys = new Map<string, Key>();
  for (const [name, child] of Object.entries(shapeOf(schema)!)) {
    const meta = { ...unwrap(child).meta(), ...child.meta() };
    const object = objectBelow(child);
    keys.set(name, {
      ...("default" in meta && { default: meta.default }),
      deprecated: meta.deprecated === true,
      ...(object && { below: keyTable(object) }),
    });
  }
  return { keys };
}

interface Def {
  type: string;
  innerType?: z.ZodType;
  element?: z.ZodType;
  options?: z.ZodType[];
  shape?: Record<string, z.ZodType>;
}

const defOf = (schema: z.ZodType): Def => schema._zod.def as unknown as Def;
const shapeOf = (schema: z.ZodType): Record<string, z.ZodType> | undefined => defOf(schema).shape;

function unwrap(schema: z.ZodType): z.ZodType {
  const inner = defOf(schema).innerType;
  return inner === undefined ? schema : unwrap(inner);
}

/** The object a schema stands for: itself, its elements, or the object among its alternatives. */
function objectBelow(schema: z.ZodType): z.ZodType | undefined {
  const def = defOf(schema);
  const inner = def.innerType ?? def.element;
  if (inner !== undefined) return objectBelow(inner);
  if (def.options !== undefined) return def.options.map(objectBelow).find((one) => one !== undefined);
  return def.shape === undefined ? undefined : schema;
}

export type Path = (string | number)[];

/** A path as messages write it: `environment.mcp_servers[0].extra`. */
export function dotted(path: readonly (string | number)[]): string {
  return path.reduce<string>((text, part) => {
    if (typeof part === "number") return `${text}[${part}]`;
    const name = /^[\w-]+$/.test(part) ? part : JSON.stringify(part);
    return text === "" ? name : `${text}.${name}`;
  }, "");
}

/** Calls `found` for every key of `value` that the table does not know, at any depth. */
export function unknownKeys(
  table: KeyTable,
  value: unknown,
  found: (path: Path, table: KeyTable) => void,
  path: Path = [],
): void {
  if (Array.isArray(value)) return value.forEach((one, index) => unknownKeys(table, one, found, [...path, index]));
  if (typeof value !== "object" || value === null) return;
  for (const name in value) {
    const key = table.keys.get(name);
    if (key === undefined) found([...path, name], table);
    else if (key.below !== undefined) {
      unknownKeys(key.below, (value as Record<string, unknown>)[name], found, [...path, name]);
    }
  }
}

/** What the writer of an unknown key may have meant: a near key of the same table, or the same key elsewhere. */
export function suggestion(path: Path, table: KeyTable, root: KeyTable): string | undefined {
  const name = String(path.at(-1));
  const names = [...table.keys].filter(([, key]) => !key.deprecated).map(([known]) => known);
  const near = nearest(name, names);
  if (near !== undefined) return `did you mean \`${near}\`?`;
  const home = homeOf(name, root);
  if (home === undefined) return undefined;
  return home === ""
    ? `\`${name}\` belongs at the top of the file, above the first table header`
    : `\`${name}\` belongs in [${home}]`;
}

function homeOf(name: string, table: KeyTable, path = ""): string | undefined {
  if (table.keys.get(name)?.deprecated === false) return path;
  for (const [known, key] of table.keys) {
    if (key.below === undefined) continue;
    const home = homeOf(name, key.below, path === "" ? known : `${path}.${known}`);
    if (home !== undefined) return home;
  }
  return undefined;
}

/**
 * `value` without what the table's defaults say anyway, without unknown and old keys; undefined when nothing is left
 * and absence means the same. `raw` is the document beside it, for integers that only a bigint holds.
 */
export function withoutDefaults(
  value: Record<string, unknown>,
  table: KeyTable,
  raw: unknown,
): Record<string, unknown> {
  const kept: Record<string, unknown> = {};
  for (const [name, key] of table.keys) {
    let one = value[name];
    if (one === undefined || key.deprecated) continue;
    const rawOne = (raw as Record<string, unknown> | undefined)?.[name];
    if (key.below !== undefined) one = pruned(one, key.below, rawOne);
    else if (typeof rawOne === "bigint") one = rawOne;
    if (!same(one, key.default)) kept[name] = one;
  }
  return kept;
}

function pruned(value: unknown, table: KeyTable, raw: unknown): unknown {
  if (Array.isArray(value)) {
    return value.map((one, index) => pruned(one, table, (raw as unknown[] | undefined)?.[index]));
  }
  return isTable(value) ? withoutDefaults(value, table, raw) : value;
}

const isTable = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null;

function same(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (Array.isArray(a) && Array.isArray(b)) {
    return a.length === b.length && a.every((one, index) => same(one, b[index]));
  }
  return isTable(a) && isTable(b) && !Array.isArray(a) && Object.keys(a).length === 0 && Object.keys(b).length === 0;
}
