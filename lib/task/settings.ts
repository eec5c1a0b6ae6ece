/**
 * task.toml as text → checked settings, with every finding worded and placed. Pure: nothing is read from disk.
 */
import type { z } from "zod";
import { dotted, keyTable, type Path, suggestion, unknownKeys, withoutDefaults } from "./keys.ts";
import { type Findings, shown } from "./refusals.ts";
import { applyRules, at, type Say, sayer } from "./rules.ts";
import { StrictTaskToml, TaskToml } from "./schema.ts";
import { lineOfKey, readToml, TomlDate } from "./toml.ts";

const TABLE = keyTable(TaskToml);
const STRICT_TABLE = keyTable(StrictTaskToml);

export interface Settings {
  /** Checked, old spellings replaced, defaults not filled in. */
  config: TaskToml;
  /** What differs from the defaults, in upstream's spelling (`check --resolved`). Integers may be bigint. */
  resolved(): Record<string, unknown>;
}

export interface SettingsOptions {
  /** Harbor 0.25.0's verdict instead of NeMo Gym's. */
  strict?: boolean;
  /** The file's path as messages write it. */
  shownAs: string;
  /** The file's path as findings carry it. */
  file?: string;
}

/** Reads task.toml. Null when it refuses; `findings` says why, and holds the warnings. */
export function readSettings(text: string, findings: Findings, options: SettingsOptions): Settings | null {
  const { strict = false, shownAs, file = "task.toml" } = options;
  const parsed = readToml(text, { toml10: strict });
  if (!parsed.ok) {
    findings.add("toml.syntax", { at: shownAs, detail: parsed.message, hint: parsed.hint }, {
      file,
      line: parsed.line,
    });
    return null;
  }
  const raw = parsed.table;
  const before = findings.errors.length;
  const say = sayer(findings, shownAs, file, (path) => lineOfKey(text, path));
  sayUnknownKeys(raw, say);
  const checked = (strict ? StrictTaskToml : TaskToml).safeParse(raw);
  if (!checked.success) {
    for (const issue of checked.error.issues) sayIssue(issue, raw, say);
    return null;
  }
  const config = checked.data as TaskToml;
  applyRules(config, raw, say, strict);
  if (findings.errors.length > before) return null;
  return { config, resolved: () => resolvedOf(config, raw, strict) };
}

function sayUnknownKeys(raw: Record<string, unknown>, say: Say): void {
  unknownKeys(TABLE, raw, (path, table) => say("toml.unknown-key", path, { hint: suggestion(path, table, TABLE) }));
}

type Issue = z.core.$ZodIssue;

const WORDS: Record<string, string> = {
  string: "text in quotes",
  array: "a list",
  object: "a table",
  record: "a table",
  number: "a number",
  boolean: "true or false",
};

function sayIssue(issue: Issue, raw: unknown, say: Say): void {
  const path = issue.path as Path;
  const found = at(raw, path);
  if (issue.code === "invalid_union") {
    const table = typeof found === "object" && found !== null && !Array.isArray(found);
    const inner = table ? issue.errors.at(-1)! : [];
    for (const one of inner) sayIssue({ ...one, path: [...path, ...one.path] } as Issue, raw, say);
    if (!table) say("toml.type", path, { found: shown(found), wanted: "text in quotes or a table" });
    return;
  }
  say("toml.type", path, { found: shown(found), wanted: wanted(issue), hint: quoteHint(issue, path, found) });
}

function wanted(issue: Issue): string {
  switch (issue.code) {
    case "invalid_type":
      return WORDS[issue.expected] ?? issue.expected;
    case "invalid_value":
      return issue.values.map((value) => JSON.stringify(value)).join(" or ");
    case "too_small":
      return "at least one character";
    default:
      return issue.message;
  }
}

function quoteHint(issue: Issue, path: Path, found: unknown): string | undefined {
  const scalar = ["number", "bigint", "boolean"].includes(typeof found);
  return issue.code === "invalid_type" && issue.expected === "string" && scalar
    ? `put quotes around it: ${dotted(path.slice(-1))} = "${found}"`
    : undefined;
}

/**
 * As upstream writes values to JSON: what JSON cannot hold is text (`"NaN"`), dates have no fraction of zero.
 */
function resolvedOf(config: TaskToml, raw: Record<string, unknown>, strict: boolean): Record<string, unknown> {
  return jsonable(withoutDefaults(config, strict ? STRICT_TABLE : TABLE, raw)) as Record<string, unknown>;
}

function jsonable(value: unknown): unknown {
  if (typeof value === "number") return Number.isFinite(value) ? value : String(value);
  if (value instanceof TomlDate) return dateText(value);
  if (Array.isArray(value)) return value.map(jsonable);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, jsonable(one)]));
}

const dateText = (date: TomlDate): string =>
  date.toISOString().replace(
    /\.(\d+)/,
    (_, fraction: string) => Number(fraction) === 0 ? "" : `.${fraction.padEnd(6, "0")}`,
  );
