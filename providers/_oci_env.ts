/**
 * The environment of a container whose first process is the task's own. Values may be secret: they go by a file that is
 * gone once the container has started, or by the client's own environment, never on a command line.
 */
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { cannotSet } from "../lib/sandbox/variables.ts";

export interface EnvironmentSplit {
  /** Lines of an env file. */
  lines: string[];
  /** What the client takes from its own environment, by name. */
  byClient: Record<string, string>;
}

/** Longest line that both engines read from an env file (docker 20.10 and podman 4.3: one scanner's buffer, 64 KiB). */
const LONGEST_LINE = 60_000;

/** Names that would steer the client which is to hand them on. */
const STEERING =
  /^(PATH|HOME|USER|TMPDIR|TERM|SSH_.*|DOCKER_.*|BUILDKIT_.*|CONTAINERS?_.*|STORAGE_.*|REGISTRY_AUTH_FILE|LD_.*|XDG_.*|SSL_CERT_.*|GO[A-Z]+|_.*|GYM_HARBOR_.*|DBUS_.*|NOTIFY_SOCKET|LISTEN_.*|(https?|no|all|ftp)_proxy)$/i;

/**
 * Throws "task.unsupported" for a variable that goes neither way: a line break or more than 60,000 bytes in one that
 * steers the engine's client.
 */
export function splitEnvironment(env: Readonly<Record<string, string>>): EnvironmentSplit {
  const split: EnvironmentSplit = { lines: [], byClient: {} };
  for (const [name, value] of Object.entries(env)) {
    const line = `${name}=${value}`;
    const plain = /^[A-Za-z_][A-Za-z0-9_.-]*$/.test(name) && !/[\r\n]/.test(value);
    if (plain && new TextEncoder().encode(line).length <= LONGEST_LINE) split.lines.push(line);
    else if (!STEERING.test(name)) split.byClient[name] = value;
    else {
      const why = "it steers the engine's own client, and only a short value of one line goes in by a file";
      throw cannotSet(name, why, "rename it, or set it in the image");
    }
  }
  return split;
}

export interface PassedEnvironment extends Disposable {
  flags: string[];
  /** Over the client's environment. */
  client: Record<string, string>;
}

/** Writes what goes by a file (mode 0600) into `folder`; disposal removes it. */
export function passEnvironment(env: Readonly<Record<string, string>>, folder: string): PassedEnvironment {
  const { lines, byClient } = splitEnvironment(env);
  const file = join(folder, `env-${crypto.randomUUID()}`);
  if (lines.length > 0) writeFileSync(file, `${lines.join("\n")}\n`, { mode: 0o600, flag: "wx" });
  return {
    flags: [
      ...(lines.length > 0 ? ["--env-file", file] : []),
      ...Object.keys(byClient).flatMap((name) => ["--env", name]),
    ],
    client: byClient,
    [Symbol.dispose]: () => rmSync(file, { force: true }),
  };
}
