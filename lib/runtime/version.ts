/** What this build is. compile.sh defines GYM_HARBOR_COMMIT, so the binary knows its commit. */
import process from "node:process";
import config from "../../deno.json" with { type: "json" };
import { runtimeName, runtimeVersion } from "./self.ts";

export interface VersionFacts {
  version: string;
  commit: string | null;
  runtime: string;
  platform: string;
}

declare global {
  /** Replaced at build time (`--define`); absent when run from source. */
  var GYM_HARBOR_COMMIT: string | undefined;
}

export function versionFacts(): VersionFacts {
  return {
    version: config.version,
    commit: globalThis.GYM_HARBOR_COMMIT ?? null,
    runtime: `${runtimeName} ${runtimeVersion}`,
    platform: `${process.platform}-${process.arch}`,
  };
}
