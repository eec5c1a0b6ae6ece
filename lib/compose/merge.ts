/**
 * Several Compose files as one (spec/images-and-sandboxes §6.3): tables key by key, lists appended, some of them with one
 * entry per target, some replaced whole. Lists that stand for tables become tables first. Pure.
 */
import { isTable, Override, Reset, type Table, table, type Value } from "./document.ts";
import { readPort } from "./ports.ts";
import { asText } from "./scalars.ts";

/** The files in order, later ones over earlier ones; marks are gone afterwards. */
export function mergeDocuments(documents: readonly Table[]): Table {
  return documents.reduce<Table>((merged, one) => merge(merged, one, []) as Table, table());
}

type Path = readonly string[];

/** `services.web.environment` → `services.*.environment`. */
const pattern = (path: Path): string => [path[0], ...(path.length > 1 ? ["*"] : []), ...path.slice(2)].join(".");

const TABLES = new Set([
  "services.*.annotations",
  "services.*.build.args",
  "services.*.build.labels",
  "services.*.depends_on",
  "services.*.deploy.labels",
  "services.*.environment",
  "services.*.extra_hosts",
  "services.*.labels",
  "services.*.networks",
]);

const REPLACED = new Set(["services.*.command", "services.*.entrypoint", "services.*.healthcheck.test"]);

/** What makes two entries of a list one; undefined for an entry that stands for itself. */
const IDENTITY: Record<string, (entry: Value) => string | undefined> = {
  "services.*.ports": (entry) => {
    const port = readPort(entry);
    return typeof port === "string" ? undefined : `${port.targets}/${port.protocol}/${port.hostIp ?? ""}`;
  },
  "services.*.volumes": (entry) => {
    if (isTable(entry)) return asText(entry.target);
    const parts = asText(entry)?.split(":");
    return parts === undefined ? undefined : parts[1] ?? parts[0];
  },
  "services.*.expose": asText,
  "services.*.devices": (entry) => asText(entry)?.split(":")[1] ?? asText(entry),
  "services.*.tmpfs": asText,
};

function merge(base: Value | undefined, over: Value, path: Path): Value | undefined {
  if (over instanceof Reset) return undefined;
  if (over instanceof Override) return merge(undefined, over.value, path);
  const [first, second] = [base === undefined ? undefined : shaped(base, path), shaped(over, path)];
  if (second === null) return first ?? null;
  if (isTable(second)) return mergeTables(isTable(first) ? first : table(), second, path);
  if (!Array.isArray(second)) return second;
  const bare = second.map((entry) => merge(undefined, entry, [...path, "[]"])).filter((one) => one !== undefined);
  if (!Array.isArray(first) || REPLACED.has(pattern(path))) return bare;
  return appended(first, bare, IDENTITY[pattern(path)] ?? (() => undefined));
}

function mergeTables(base: Table, over: Table, path: Path): Table {
  const merged = table(Object.entries(base));
  for (const [key, value] of Object.entries(over)) {
    const made = merge(merged[key], value, [...path, key]);
    if (made === undefined) delete merged[key];
    else merged[key] = made;
  }
  return merged;
}

function appended(first: Value[], second: Value[], identity: (entry: Value) => string | undefined): Value[] {
  const later = new Set(second.map(identity).filter((one) => one !== undefined));
  const kept = first.filter((entry) => {
    const own = identity(entry);
    return own === undefined || !later.has(own);
  });
  return [...kept, ...second];
}

/** The long form of what may be written short. What is malformed stays as it is: its reader names it. */
function shaped(value: Value, path: Path): Value {
  const at = pattern(path);
  if (at === "services.*.build" && typeof value === "string") return table([["context", value]]);
  if (["services.*.env_file", "services.*.tmpfs"].includes(at) && typeof value === "string") return [value];
  if (!TABLES.has(at) || !Array.isArray(value)) return value;
  const texts = value.map(asText);
  if (texts.some((one) => one === undefined)) return value;
  return table((texts as string[]).map((text): [string, Value] => {
    if (at.endsWith(".depends_on")) return [text, table([["condition", "service_started"]])];
    if (at.endsWith(".networks")) return [text, null];
    const sign = at.endsWith(".extra_hosts") ? /[=:]/ : /=/;
    const place = text.search(sign);
    return place < 0 ? [text, null] : [text.slice(0, place), text.slice(place + 1)];
  }));
}
