/**
 * The environment of a build tool (spec/images-and-sandboxes §4.5). Its logins, proxies and its own configuration pass
 * through; what we need changed goes on top of them in files of the build's own folder.
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parse, stringify, type TomlTable } from "smol-toml";
import { HUB, isLoopback } from "../../lib/images/reference.ts";
import type { RegistrySettings } from "../../lib/registry/settings.ts";
import type { Tool } from "./_argv.ts";

type Env = Readonly<Record<string, string | undefined>>;

export interface EnvironmentRequest {
  env: Env;
  /** A folder of ours on a disk of this machine: temp files and generated configuration. */
  folder: string;
  registries: RegistrySettings;
}

/** Writes what the tool reads into `folder`. A `CONTAINERS_CONF` of the machine's stays in force. */
export function toolEnvironment(tool: Tool, { env, folder, registries }: EnvironmentRequest): Env {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const common = { ...env, LC_ALL: "C", TMPDIR: folder };
  if (tool.name === "docker") {
    return {
      ...common,
      BUILDKIT_PROGRESS: "plain",
      ...(tool.kind === "classic" && { DOCKER_BUILDKIT: "0" }),
      ...(tool.kind === "buildkit" && { DOCKER_BUILDKIT: "1" }),
    };
  }
  const registriesFile = join(folder, "registries.conf");
  writeFileSync(registriesFile, registriesConf(machineRegistries(env), registries), { mode: 0o600 });
  const containersFile = join(folder, "containers.conf");
  writeFileSync(containersFile, containersConf(folder), { mode: 0o600 });
  return {
    ...common,
    CONTAINERS_REGISTRIES_CONF: registriesFile,
    // Read on top of the machine's files by podman 4.4 and later, not at all by 4.3, which TMPDIR tells the same.
    CONTAINERS_CONF_OVERRIDE: env.CONTAINERS_CONF_OVERRIDE ?? containersFile,
  };
}

const containersConf = (folder: string): string => stringify({ engine: { image_copy_tmp_dir: folder } });

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

/** Proxy variables that are set, by name alone: their values may hold passwords. */
export function proxiesSet(env: Env): string[] {
  return Object.keys(env).filter((name) => /^(https?|no|all|ftp)_proxy$/i.test(name) && env[name]).sort();
}
