/** The tables of a Compose file beside its services: what is declared under `volumes` and `networks`, what is refused. */
import { nearest } from "../suggest.ts";
import { isTable, type Table, table, type Value } from "./document.ts";
import { isVoid } from "./readers.ts";
import type { Refusals } from "./refusals.ts";
import { asBoolean, asText } from "./scalars.ts";

/** What a service or a volume may be called. */
export const NAME = /^[A-Za-z0-9][A-Za-z0-9_.-]*$/;

const TOP_LEVEL = ["name", "version", "services", "networks", "volumes"];
const UNSUPPORTED = ["configs", "secrets", "models", "include"];

/** Refuses keys of the file that nobody has, or that a group has not. */
export function readTopLevel(document: Table, refusals: Refusals, warnings: string[]): void {
  for (const [key, value] of Object.entries(document)) {
    if (TOP_LEVEL.includes(key) || key.startsWith("x-")) continue;
    if (UNSUPPORTED.includes(key)) {
      if (!isVoid(value)) refusals.add(null, key, "is not supported");
      continue;
    }
    const near = nearest(key, TOP_LEVEL);
    refusals.add(null, key, `is no key of a Compose file${near === undefined ? "" : ` (did you mean ${near}?)`}`);
  }
  if (!isVoid(document.version ?? null)) warnings.push("version is read by nobody any more");
}

/** Names under `volumes`. */
export function readVolumeTable(value: Value | undefined, refusals: Refusals, notes: string[]): Set<string> {
  const names = new Set<string>();
  for (const [name, settings] of sections("volumes", value, refusals)) {
    names.add(name);
    if (!NAME.test(name)) refusals.add(null, `volumes.${name}`, "is no name of a volume");
    for (const [key, one] of Object.entries(settings)) {
      if (isVoid(one) || key === "labels" || key.startsWith("x-")) continue;
      if (key === "name") notes.push(`volumes.${name}: name is left out, a volume belongs to its episode`);
      else if (key !== "driver" || asText(one) !== "local") {
        refusals.add(null, `volumes.${name}.${key}`, "is not supported");
      }
    }
  }
  return names;
}

/** Whether the default network is internal: nothing reaches out. */
export function readNetworkTable(value: Value | undefined, refusals: Refusals, notes: string[]): boolean {
  let isInternal = false;
  for (const [name, settings] of sections("networks", value, refusals)) {
    for (const [key, one] of Object.entries(settings)) {
      const at = `networks.${name}.${key}`;
      if (isVoid(one) || ["labels", "name", "attachable"].includes(key) || key.startsWith("x-")) continue;
      if (key === "internal" && asBoolean(one) !== undefined) isInternal ||= name === "default" && asBoolean(one)!;
      else if (key !== "driver" || asText(one) !== "bridge") refusals.add(null, at, "is not supported");
    }
    if (name !== "default") notes.push(`networks.${name}: left out, a group has one network`);
  }
  return isInternal;
}

/** The tables below one key of the file; an empty one for a name without settings. */
export function sections(key: string, value: Value | undefined, refusals: Refusals): [string, Table][] {
  if (value === undefined || isVoid(value)) return [];
  if (!isTable(value)) {
    refusals.add(null, key, "must be a table");
    return [];
  }
  return Object.entries(value).flatMap(([name, one]): [string, Table][] => {
    if (one === null) return [[name, table()]];
    if (isTable(one)) return [[name, one]];
    refusals.add(null, `${key}.${name}`, "must be a table");
    return [];
  });
}
