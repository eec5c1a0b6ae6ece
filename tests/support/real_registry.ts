/** Debian's `docker-registry` on a free port of 127.0.0.1, with everything in a folder of the test's own. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";

const SCRIPT = join(import.meta.dirname!, "kit/start-registry.sh");

export interface RealRegistry extends Disposable {
  /** `127.0.0.1:port`. */
  host: string;
}

/** Why there can be none here; undefined where there can. */
export function registrySkip(): string | undefined {
  return spawnSync("docker-registry", ["--version"]).error === undefined ? undefined : "docker-registry: not installed";
}

/** With `login`, only that account may read and write. */
export function startRegistry(folder: string, login?: { user: string; password: string }): RealRegistry {
  const env = { ...process.env, ...(login && { REGISTRY_USER: login.user, REGISTRY_PASS: login.password }) };
  const started = spawnSync("bash", [SCRIPT, folder], { env, encoding: "utf8" });
  assert.equal(started.status, 0, started.stderr);
  return {
    host: /REGISTRY=(\S+)/.exec(readFileSync(join(folder, "env"), "utf8"))![1]!,
    [Symbol.dispose]: () => void spawnSync("bash", [SCRIPT, "--stop", folder]),
  };
}
