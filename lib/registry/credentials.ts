/** A login at a registry, and who finds it (credential_files.ts looks where docker and podman keep theirs). */
import { Buffer } from "node:buffer";

export type Credential =
  | { kind: "basic"; username: string; password: string }
  /** Exchanged for a token at the realm that the registry names. */
  | { kind: "identity"; token: string };

/** The login for `host/repository`, or undefined. `host` is a common name (`docker.io`). Never throws for bad files. */
export type FindCredential = (
  host: string,
  repository: string,
  signal: AbortSignal,
) => Promise<Credential | undefined>;

/** Value of an `Authorization` header (RFC 7617, UTF-8). */
export function basicHeader({ username, password }: { username: string; password: string }): string {
  return `Basic ${Buffer.from(`${username}:${password}`, "utf8").toString("base64")}`;
}
