/**
 * `built-images.json`: which images a build context has given, by its hash (images §3.1). What an image is and what it
 * was built from stands with it in compose-images.json, so losing that file rebuilds. Entries of NeMo Gym are read as
 * far as they parse; what is not understood stays where it is.
 */
import { z } from "zod";
import { platformName } from "./config.ts";
import { sortByCodePoint } from "../files/order.ts";
import { isObject, type JsonObject } from "./record_file.ts";
import { isPinned } from "./reference.ts";

export const BUILT_IMAGES = "built-images.json";

/** What a context has given. */
export interface BuiltRecord {
  /** Service (`main` for the task's image) → reference that is started. */
  services: Record<string, string>;
  /** Name of the builder; any text in records of others. */
  tool?: string;
  pushed: boolean;
  /** `os/arch`; undefined for an entry that does not tell. */
  platform?: string;
}

const Entry = z.looseObject({
  services: z.record(z.string(), z.unknown()).default({}),
  tool: z.string().optional().catch(undefined),
  pushed: z.boolean().optional().catch(undefined),
  platform: z.string().optional().catch(undefined),
});

/** The entry of a context as far as it parses. */
export function builtRecord(file: JsonObject, hash: string): BuiltRecord | undefined {
  const parsed = Entry.safeParse(Object.hasOwn(file, hash) ? file[hash] : undefined);
  if (!parsed.success) return undefined;
  const { services, tool, pushed, platform } = parsed.data;
  const references = Object.entries(services).flatMap(([service, image]): [string, string][] => {
    const reference = referenceIn(image);
    return reference === undefined ? [] : [[service, reference]];
  });
  return {
    services: Object.fromEntries(references),
    ...(tool !== undefined && { tool }),
    pushed: pushed ?? references.some(([, reference]) => isPinned(reference)),
    ...(platform !== undefined && { platform: platformName(platform) }),
  };
}

/** A service's image, written as a text or as an object that holds it. */
function referenceIn(image: unknown): string | undefined {
  const reference = isObject(image) ? image.image : image;
  return typeof reference === "string" && reference !== "" ? reference : undefined;
}

/** One image that was built, or is used as it was built before. */
export interface BuiltFact {
  hash: string;
  service: string;
  reference: string;
  /** Undefined: an entry that does not tell stays so. */
  tool: string | undefined;
  pushed: boolean;
  /** `os/arch`. */
  platform: string;
  /** Folder below the task: `environment`, `tests`, `steps/<name>/tests`. */
  context: string;
  /** Task ids that use it; those for builds.force alone. */
  tasks: readonly string[];
  forced: readonly string[];
}

/**
 * `file` with these facts. Task lists grow; a task whose folder now has another hash leaves the entries it was in
 * before (`moved`: task id → the hashes it has now).
 */
export function withBuilt(
  file: JsonObject,
  facts: readonly BuiltFact[],
  moved: ReadonlyMap<string, ReadonlySet<string>> = new Map(),
): JsonObject {
  const merged = { ...file };
  for (const fact of facts) {
    const found = Object.hasOwn(merged, fact.hash) ? merged[fact.hash] : undefined;
    const entry = isObject(found) ? found : {};
    const before = isObject(entry.services) ? entry.services : {};
    const service = before[fact.service];
    const isSame = referenceIn(service) === fact.reference;
    merged[fact.hash] = {
      ...entry,
      services: { ...before, [fact.service]: isSame ? service : fact.reference },
      ...(fact.tool !== undefined && { tool: fact.tool }),
      pushed: fact.pushed,
      platform: fact.platform,
      context: fact.context,
      tasks: union(entry.tasks, fact.tasks),
      forced_tasks: union(entry.forced_tasks, fact.forced),
    };
  }
  for (const [hash, entry] of Object.entries(merged)) {
    const left = isObject(entry) ? withoutMoved(entry, hash, moved) : undefined;
    if (left !== undefined) merged[hash] = left;
  }
  return merged;
}

const idsIn = (found: unknown): string[] =>
  Array.isArray(found) ? found.filter((one): one is string => typeof one === "string") : [];

const union = (found: unknown, ids: readonly string[]): string[] =>
  sortByCodePoint([...new Set([...idsIn(found), ...ids])]);

function withoutMoved(
  entry: JsonObject,
  hash: string,
  moved: ReadonlyMap<string, ReadonlySet<string>>,
): JsonObject | undefined {
  const stays = (id: string) => moved.get(id)?.has(hash) ?? true;
  const lists = (["tasks", "forced_tasks"] as const).filter((key) => !idsIn(entry[key]).every(stays));
  if (lists.length === 0) return undefined;
  return { ...entry, ...Object.fromEntries(lists.map((key) => [key, idsIn(entry[key]).filter(stays)])) };
}
