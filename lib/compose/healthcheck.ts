/**
 * Health checks (spec/images-and-sandboxes §6.5): as a Compose file writes them, as an image's configuration holds them,
 * and the two together. Pure.
 */
import type { ImageConfig } from "../images/config.ts";
import type { Value } from "./document.ts";
import type { Healthcheck, HealthcheckPart, Probe } from "./plan.ts";
import { isVoid, readBoolean, readCount, readDuration, readTable, readTexts, refuseOthers } from "./readers.ts";
import type { Field } from "./refusals.ts";
import { asText } from "./scalars.ts";

const DEFAULTS = { intervalMs: 30_000, timeoutMs: 30_000, retries: 3, startPeriodMs: 0, startIntervalMs: 5000 };

const TIMES = {
  interval: "intervalMs",
  timeout: "timeoutMs",
  start_period: "startPeriodMs",
  start_interval: "startIntervalMs",
} as const;

/** `healthcheck` as written; undefined when it says nothing. */
export function readHealthcheck(value: Value, field: Field): HealthcheckPart | undefined {
  const section = readTable(value, field);
  if (section === undefined) return undefined;
  refuseOthers(section, ["test", "retries", "disable", ...Object.keys(TIMES)], field);
  const part: Exclude<HealthcheckPart, "none"> = {};
  if (!isVoid(section.disable ?? null) && readBoolean(section.disable!, field.at("disable"))) return "none";
  if (!isVoid(section.test ?? null)) {
    const probe = readTest(section.test!, field.at("test"));
    if (probe === "none") return "none";
    if (probe !== undefined) part.probe = probe;
  }
  for (const [key, name] of Object.entries(TIMES)) {
    if (isVoid(section[key] ?? null)) continue;
    const ms = readDuration(section[key]!, field.at(key));
    if (ms !== undefined && ms > 0) part[name] = ms;
  }
  if (!isVoid(section.retries ?? null)) {
    const retries = readCount(section.retries!, field.at("retries"));
    if (retries !== undefined && retries > 0) part.retries = retries;
  }
  return Object.keys(part).length === 0 ? undefined : part;
}

function readTest(value: Value, field: Field): Probe | "none" | undefined {
  if (!Array.isArray(value)) {
    const script = asText(value);
    if (script === undefined) field.refuse("must be text or a list");
    return script === undefined ? undefined : { script };
  }
  const words = readTexts(value, field);
  const probe = probeOf(words);
  if (probe === undefined) field.refuse("must begin with NONE, CMD or CMD-SHELL, and name what to run");
  return probe;
}

/** The list form, as images hold it too. */
function probeOf([kind, ...rest]: readonly string[]): Probe | "none" | undefined {
  if (kind === "NONE") return "none";
  if (kind === "CMD" && rest.length > 0) return { argv: rest };
  return kind === "CMD-SHELL" && rest.length === 1 ? { script: rest[0]! } : undefined;
}

const NANOSECONDS = {
  Interval: "intervalMs",
  Timeout: "timeoutMs",
  StartPeriod: "startPeriodMs",
  StartInterval: "startIntervalMs",
} as const;

/** What an image's configuration says; undefined when it has none. */
function ofImage(config: ImageConfig | undefined): Exclude<HealthcheckPart, "none"> | undefined {
  const own = config?.Healthcheck as Record<string, unknown> | null | undefined;
  const probe = Array.isArray(own?.Test) ? probeOf(own.Test.map(String)) : undefined;
  if (own === null || own === undefined || probe === undefined || probe === "none") return undefined;
  const part: Exclude<HealthcheckPart, "none"> = { probe };
  for (const [key, name] of Object.entries(NANOSECONDS)) {
    const nanoseconds = Number(own[key] ?? 0);
    if (nanoseconds > 0) part[name] = nanoseconds / 1e6;
  }
  if (Number(own.Retries ?? 0) > 0) part.retries = Number(own.Retries);
  return part;
}

/** The check in effect: the file's parts over the image's, defaults below; null when there is none. */
export function healthcheckOf(part: HealthcheckPart | undefined, config: ImageConfig | undefined): Healthcheck | null {
  if (part === "none") return null;
  const { probe, ...rest } = { ...ofImage(config), ...part };
  return probe === undefined ? null : { ...DEFAULTS, ...rest, probe };
}
