/** `build` of a service → what a builder gets (spec/images-and-sandboxes §4.4); what reaches beyond the task is refused. */
import { platformName } from "../images/config.ts";
import { type Table, type Value } from "./document.ts";
import type { Lookup } from "./interpolate.ts";
import { placeInside } from "./paths.ts";
import type { ServiceBuild } from "./plan.ts";
import {
  isVoid,
  readBoolean,
  readBytes,
  readTable,
  readText,
  readTexts,
  readTextTable,
  refuseOthers,
} from "./readers.ts";
import type { Field } from "./refusals.ts";
import { asText } from "./scalars.ts";

const KEYS = [
  ...["context", "dockerfile", "dockerfile_inline", "args", "target", "labels", "shm_size", "ulimits", "no_cache"],
  ...["pull", "network", "cache_from", "cache_to", "platforms", "tags", "isolation", "provenance", "sbom"],
];

export interface BuildFacts {
  /** Absolute folder environment/. */
  environment: string;
  /** `os/arch` of the run. */
  platform: string;
  variables: Lookup;
}

export function readBuild(value: Value, field: Field, facts: BuildFacts): ServiceBuild | undefined {
  const section = readTable(value, field);
  if (section === undefined) return undefined;
  refuseOthers(section, KEYS, field);
  const given = (key: string): Value | undefined => {
    const one = section[key];
    return one === undefined || isVoid(one) ? undefined : one;
  };
  const optional = <T>(key: string, read: (value: Value, field: Field) => T): T | undefined => {
    const one = given(key);
    return one === undefined ? undefined : read(one, field.at(key));
  };
  const context = contextOf(section, field, facts.environment);
  const network = optional("network", readText);
  if (network !== undefined && !["default", "none"].includes(network)) {
    field.at("network").refuse(`'${network}' is not supported, only default and none`);
  }
  for (const key of ["cache_from", "cache_to"]) {
    const cached = optional(key, readTexts) ?? [];
    if (cached.some(holdsCredentials)) field.at(key).refuse("holds credentials");
  }
  const platforms = optional("platforms", readTexts) ?? [facts.platform];
  if (!platforms.map(platformName).includes(facts.platform)) {
    field.at("platforms").refuse(`does not hold ${facts.platform}`);
  }
  if (given("tags") !== undefined) field.at("tags").note("are left out: the image has a name of our own");
  if (given("cache_to") !== undefined) field.at("cache_to").note("is left out");
  const shmSize = optional("shm_size", readBytes);
  if (context === undefined) return undefined;
  const dockerfile = dockerfileOf(section, field, context);
  if (dockerfile === undefined) return undefined;
  return {
    context,
    dockerfile,
    args: argsOf(section.args, field.at("args"), facts.variables),
    ...defined("target", optional("target", readText)),
    labels: optional("labels", readTextTable) ?? {},
    ...defined("shmSize", shmSize === undefined ? undefined : String(shmSize)),
    ulimits: optional("ulimits", readUlimitTexts) ?? {},
    ...defined("noCache", optional("no_cache", readBoolean)),
    ...defined("pull", optional("pull", readBoolean)),
    ...defined("network", network as ServiceBuild["network"]),
    cacheFrom: optional("cache_from", readTexts) ?? [],
  };
}

function contextOf(section: Table, field: Field, environment: string): string | undefined {
  const written = asText(section.context) ?? ".";
  const at = field.at("context");
  if (/^[a-z][a-z0-9+.-]*:\/\/|^git@|^github\.com\//i.test(written)) {
    at.refuse(`'${written}' is remote, must be a folder in environment/`);
    return undefined;
  }
  const place = placeInside(written, environment, environment, "environment/");
  if (typeof place === "string") at.refuse(place);
  else if (place.kind !== "dir") at.refuse(`'${written}' is no folder`);
  else return place.path;
  return undefined;
}

function dockerfileOf(section: Table, field: Field, context: string): ServiceBuild["dockerfile"] | undefined {
  const inline = asText(section.dockerfile_inline);
  const written = asText(section.dockerfile);
  if (inline !== undefined && inline !== "") {
    if (written !== undefined) field.at("dockerfile").refuse("and dockerfile_inline exclude each other");
    return { inline };
  }
  const place = placeInside(written ?? "Dockerfile", context, context, "the build context");
  const at = field.at("dockerfile");
  if (typeof place === "string") at.refuse(place);
  else if (place.kind !== "file") at.refuse(`'${written ?? "Dockerfile"}' does not exist`);
  else return { path: place.path };
  return undefined;
}

/** An argument without a value takes the variable of its name; one that is not set is left out. */
function argsOf(value: Value | undefined, field: Field, variables: Lookup): Record<string, string> {
  if (value === undefined || value === null) return {};
  const entries = Object.entries(readTable(value, field) ?? {});
  return Object.fromEntries(entries.flatMap(([name, one]): [string, string][] => {
    if (!/^[A-Za-z_][A-Za-z0-9_.-]*$/.test(name)) {
      field.refuse(`has the name '${name}'`);
      return [];
    }
    const text = one === null ? variables.get(name) : readText(one, field.at(name));
    return text === undefined ? [] : [[name, text]];
  }));
}

/** `nofile=1024:2048`, as builders take them. */
function readUlimitTexts(value: Value, field: Field): Record<string, string> {
  const limits = readUlimits(value, field);
  return Object.fromEntries(
    Object.entries(limits).map(([name, { soft, hard }]) => [name, soft === hard ? `${soft}` : `${soft}:${hard}`]),
  );
}

/** `nofile: 1024` or `nofile: {soft, hard}`. -1 is no limit. */
export function readUlimits(value: Value, field: Field): Record<string, { soft: number; hard: number }> {
  const limits: Record<string, { soft: number; hard: number }> = {};
  for (const [name, given] of Object.entries(readTable(value, field) ?? {})) {
    const at = field.at(name);
    const number = (one: Value | undefined) => (/^-?\d+$/.test(asText(one) ?? "") ? Number(asText(one)) : undefined);
    const both = number(given);
    const [soft, hard] = typeof given === "object" && given !== null && !Array.isArray(given)
      ? [number((given as Table).soft), number((given as Table).hard)]
      : [both, both];
    if (!/^[a-z]+$/.test(name)) at.refuse("is no name of a limit");
    else if (soft === undefined || hard === undefined) at.refuse("must be a whole number, or soft and hard");
    else if (hard !== -1 && (soft === -1 || soft > hard)) at.refuse(`has soft ${soft} above hard ${hard}`);
    else limits[name] = { soft, hard };
  }
  return limits;
}

const holdsCredentials = (text: string): boolean =>
  /(?:secret|token|password|access_key|session)[a-z_]*=|:\/\/[^/@]*:[^/@]*@/i.test(text);

const defined = <K extends string, T>(key: K, value: T | undefined): { [key in K]?: T } =>
  (value === undefined ? {} : { [key]: value }) as { [key in K]?: T };
