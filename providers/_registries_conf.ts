/**
 * The registries.conf that podman and buildah read: the machine's own, with short names on Docker Hub alone, loopback by
 * plain HTTP, and what the user said by `registries.<host>.…`.
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parse, stringify, type TomlTable } from "smol-toml";
import { HUB, isLoopback } from "../lib/images/reference.ts";
import type { RegistrySettings } from "../lib/registry/settings.ts";

type Env = Readonly<Record<string, string | undefined>>;

/** Writes the file into `folder`, made when missing; returns the variable that names it to a tool. */
export function registriesEnv(folder: string, env: Env, settings: RegistrySettings): Record<string, string> {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const file = join(folder, "registries.conf");
  writeFileSync(file, registriesConf(machineRegistries(env), settings), { mode: 0o600 });
  return { CONTAINERS_REGISTRIES_CONF: file };
}

/** The registries.conf that the tool would read without us; "" when there is none. */
function machineRegistries(env: Env): string {
  const candidates = [
    env.CONTAINERS_REGISTRIES_CONF,
    env.REGISTRIES_CONFIG_PATH,
    env.HOME && join(env.HOME, ".config/containers/registries.conf"),
    "/etc/containers/registries.conf",
  ];
  for (const path of candidates) {
    if (!path) continue;
    try {
      return readFileSync(path, "utf8");
    } catch {
      // the next place
    }
  }
  return "";
}

/** One `[[registry]]`; keys that we do not know stay. */
interface RegistryTable {
  location?: string;
  prefix?: string;
  insecure?: boolean;
  blocked?: boolean;
  mirror?: { location: string; insecure?: boolean }[];
  [key: string]: unknown;
}

/**
 * A registries.conf: the machine's own mirrors and blocks, short names on Docker Hub alone and without a question
 * (containers-registries.conf(5)), and what the user said of registries.
 */
export function registriesConf(machine: string, settings: RegistrySettings): string {
  const table = readable(machine);
  const registries = [
    ...(Array.isArray(table.registry) ? table.registry as RegistryTable[] : []),
    ...versionOne(table),
  ];
  const entryOf = (host: string): RegistryTable => {
    const found = registries.find(({ prefix, location }) => (prefix ?? location) === host);
    if (found !== undefined) return found;
    const made: RegistryTable = { location: host };
    registries.push(made);
    return made;
  };
  for (const host of ["localhost", "127.0.0.1"]) entryOf(host).insecure = true;
  for (const [host, { insecure, mirrors }] of settings) {
    const entry = entryOf(host);
    if (insecure) entry.insecure = true;
    if (mirrors.length > 0) entry.mirror = mirrors.map(mirrorTable);
  }
  const { registry: _, registries: __, "credential-helpers": helpers, aliases: ___, ...rest } = table;
  return stringify({
    ...rest,
    "unqualified-search-registries": [HUB],
    "short-name-mode": "disabled",
    ...(helpers !== undefined && { "credential-helpers": helpers }),
    registry: registries,
  });
}

function mirrorTable(mirror: string): { location: string; insecure?: boolean } {
  const plain = mirror.startsWith("http://");
  const location = mirror.replace(/^https?:\/\//, "").replace(/\/+$/, "");
  return { location, ...((plain || isLoopback(location.split("/")[0]!)) && { insecure: true }) };
}

/** A file that does not parse is the machine's fault to tell, once it is asked without us. */
function readable(text: string): TomlTable {
  try {
    return parse(text);
  } catch {
    return {};
  }
}

/** The first version of the format: lists under `registries.insecure` and `registries.block`. */
function versionOne(table: TomlTable): RegistryTable[] {
  const lists = table.registries as Record<string, { registries?: string[] }> | undefined;
  return [
    ...(lists?.insecure?.registries ?? []).map((location) => ({ location, insecure: true })),
    ...(lists?.block?.registries ?? []).map((location) => ({ location, blocked: true })),
  ];
}
