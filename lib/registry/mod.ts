/** The registry client of a command, with this user's logins. */
import type { Emit } from "../events.ts";
import type { Clock } from "../runtime/clock.ts";
import { systemFetch } from "../runtime/fetch.ts";
import type { Runner } from "../runtime/runner.ts";
import { RegistryClient } from "./client.ts";
import { localLogins } from "./credential_files.ts";
import type { RegistrySettings } from "./settings.ts";

export { RegistryClient } from "./client.ts";

export interface OpenRegistry {
  runner: Runner;
  clock: Clock;
  env: Readonly<Record<string, string | undefined>>;
  emit: Emit;
  settings?: RegistrySettings;
  /** Nothing may be asked of any network (--offline). */
  offline?: boolean;
  /** Sees one line per request, for --verbose. */
  trace?: (line: string) => void;
}

/** Asks nothing and reads no file before the first image is asked for. */
export function openRegistry({ runner, env, emit, settings = new Map(), ...rest }: OpenRegistry): RegistryClient {
  const credentials = localLogins({ env, runner, emit });
  return new RegistryClient({ ...rest, emit, settings, credentials, fetch: systemFetch });
}
