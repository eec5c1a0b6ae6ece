/**
 * A Compose file as text → plain values. Anchors, aliases and `<<` are worked in; `!reset` and `!override` stay as marks
 * for merge.ts. Keys of maps are text. Pure: what is wrong is thrown as a ComposeFault that names the line.
 */
import {
  type Alias,
  type Document,
  isAlias,
  isMap,
  isScalar,
  isSeq,
  LineCounter,
  type Node,
  parseDocument,
  type YAMLMap,
} from "yaml";

/** `!reset`: what earlier files said here is dropped. */
export class Reset {}

/** `!override`: replaces what earlier files said, without merging. */
export class Override {
  constructor(readonly value: Value) {}
}

export type Scalar = string | number | bigint | boolean | null;
export type Value = Scalar | Value[] | Table | Override | Reset;
/** No prototype: a key may have any name. */
export interface Table {
  [key: string]: Value;
}

export const table = (entries: Iterable<readonly [string, Value]> = []): Table => {
  const made = Object.create(null) as Table;
  for (const [key, value] of entries) made[key] = value;
  return made;
};

export const isTable = (value: unknown): value is Table =>
  typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Override) &&
  !(value instanceof Reset);

export const isScalarValue = (value: Value | undefined): value is Scalar =>
  value === null || ["string", "number", "bigint", "boolean"].includes(typeof value);

/** What is wrong with a Compose file as a file, before any service is looked at. */
export class ComposeFault extends Error {
  override readonly name = "ComposeFault";
}

/** Aliases can make a small file huge. */
const MOST_VALUES = 100_000;

/** The file's top-level table; an empty file is an empty one. `shownAs` is the file as messages name it. */
export function readDocument(text: string, shownAs: string): Table {
  const lines = new LineCounter();
  const document = parseDocument(text, {
    lineCounter: lines,
    intAsBigInt: true,
    prettyErrors: false,
    logLevel: "error",
  });
  const where = (offset: number | undefined) => `${shownAs}:${offset === undefined ? 1 : lines.linePos(offset).line}`;
  const broken = document.errors[0];
  if (broken?.code === "MULTIPLE_DOCS") throw new ComposeFault(`${where(broken.pos[0])}: a second document begins`);
  if (broken !== undefined) throw new ComposeFault(`${where(broken.pos[0])}: ${broken.message.replace(/\s+/g, " ")}`);
  const reader = new Reader(document, (node) => where(node.range?.[0]));
  const value = document.contents === null ? null : reader.value(document.contents as Node);
  if (value === null) return table();
  if (!isTable(value)) throw new ComposeFault(`${shownAs} is no table of services`);
  return value;
}

class Reader {
  #values = 0;
  #open = new Set<Node>();

  constructor(private readonly document: Document, private readonly where: (node: Node) => string) {}

  value(node: Node): Value {
    if (++this.#values > MOST_VALUES) throw new ComposeFault(`${this.where(node)}: more than ${MOST_VALUES} values`);
    const tag = (node as { tag?: string }).tag;
    if (tag === "!reset") return new Reset();
    if (tag !== undefined && tag !== "!override" && !tag.startsWith("tag:yaml.org,2002:")) {
      throw new ComposeFault(`${this.where(node)}: the tag ${tag} is not supported; there are !reset and !override`);
    }
    const value = this.#bare(node);
    return tag === "!override" ? new Override(value) : value;
  }

  #bare(node: Node): Value {
    if (isAlias(node)) return this.value(this.#target(node));
    if (isSeq(node)) return this.#inside(node, () => node.items.map((one) => this.value(one as Node)));
    if (isMap(node)) return this.#inside(node, () => this.#map(node));
    if (!isScalar(node)) return null;
    const { value } = node;
    if (typeof value === "bigint") return Number.isSafeInteger(Number(value)) ? Number(value) : value;
    return value === undefined ? null : value as Scalar;
  }

  #map(node: YAMLMap): Table {
    const own = table();
    const merged: Table[] = [];
    for (const { key, value } of node.items) {
      const name = isScalar(key) ? key.value : undefined;
      if (name === undefined || name === null || typeof name === "object") {
        throw new ComposeFault(`${this.where(key as Node ?? node)}: a key is no text`);
      }
      const read = value === null ? null : this.value(value as Node);
      const several: Value[] = Array.isArray(read) ? read : [read];
      if (name === "<<") merged.push(...several.map((one) => this.#mergeable(one, key as Node)));
      else own[String(name)] = read;
    }
    // Own keys win over merged ones, earlier merged tables over later.
    return table([...merged.reverse().flatMap((one) => Object.entries(one)), ...Object.entries(own)]);
  }

  #mergeable(value: Value, key: Node): Table {
    if (!isTable(value)) throw new ComposeFault(`${this.where(key)}: << takes a table or a list of tables`);
    return value;
  }

  #target(alias: Alias): Node {
    const target = alias.resolve(this.document);
    if (target === undefined) throw new ComposeFault(`${this.where(alias)}: there is no anchor &${alias.source}`);
    return target as Node;
  }

  /** Ends a value that contains itself. */
  #inside<T>(node: Node, read: () => T): T {
    if (this.#open.has(node)) throw new ComposeFault(`${this.where(node)}: a value contains itself`);
    this.#open.add(node);
    try {
      return read();
    } finally {
      this.#open.delete(node);
    }
  }
}
