/**
 * The environment of a build tool (spec/images-and-sandboxes §4.5). Its logins, proxies and its own configuration pass
 * through; what we need changed goes on top of them in files of the build's own folder.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { stringify } from "smol-toml";
import type { RegistrySettings } from "../../lib/registry/settings.ts";
import { registriesEnv } from "../_registries_conf.ts";
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
  const containersFile = join(folder, "containers.conf");
  writeFileSync(containersFile, containersConf(folder), { mode: 0o600 });
  return {
    ...common,
    ...registriesEnv(folder, env, registries),
    // Read on top of the machine's files by podman 4.4 and later, not at all by 4.3, which TMPDIR tells the same.
    CONTAINERS_CONF_OVERRIDE: env.CONTAINERS_CONF_OVERRIDE ?? containersFile,
  };
}

const containersConf = (folder: string): string => stringify({ engine: { image_copy_tmp_dir: folder } });

/** Proxy variables that are set, by name alone: their values may hold passwords. */
export function proxiesSet(env: Env): string[] {
  return Object.keys(env).filter((name) => /^(https?|no|all|ftp)_proxy$/i.test(name) && env[name]).sort();
}
