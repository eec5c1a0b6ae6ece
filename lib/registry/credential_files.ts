/**
 * Logins where docker, podman and buildah keep theirs (spec/images-and-sandboxes §5.4; containers-auth.json(5), Docker's
 * config.json): files first in the order of `filesOf`, in each the longest key that is the image's name or stands before
 * it at a slash. Files are read once; one that cannot be read is a warning that names it, and the next one counts.
 * Nothing of their content is ever part of a message.
 */
import { Buffer } from "node:buffer";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { errno, isAbort, messageOf } from "../errors.ts";
import type { Emit } from "../events.ts";
import { reasonOf } from "../files/reason.ts";
import { HUB, registryHost } from "../images/reference.ts";
import { inheritedEnv } from "../runtime/env.ts";
import type { Runner } from "../runtime/runner.ts";
import type { Credential, FindCredential } from "./credentials.ts";

type Env = Readonly<Record<string, string | undefined>>;

const HELPER_MS = 30_000;
/** How Docker's helpers know the Hub. */
const HUB_KEY = "https://index.docker.io/v1/";

const Login = z.looseObject({
  auth: z.string().nullish(),
  username: z.string().nullish(),
  password: z.string().nullish(),
  identitytoken: z.string().nullish(),
});
type Login = z.infer<typeof Login>;

const LoginFile = z.looseObject({
  auths: z.record(z.string(), Login).nullish(),
  credHelpers: z.record(z.string(), z.string()).nullish(),
  credsStore: z.string().nullish(),
});
type LoginFile = z.infer<typeof LoginFile>;

const HelperReply = z.looseObject({ Username: z.string(), Secret: z.string() });

interface LoginPlace {
  path: string;
  kind: "auths" | "dockercfg";
  /** By a variable of its own: then it should be there. */
  named?: true;
}

/** Where logins may be, first one first. */
export function filesOf(env: Env): LoginPlace[] {
  const home = env.HOME || undefined;
  const below = (folder: string | undefined, ...names: string[]) =>
    folder === undefined || folder === "" ? [] : [{ path: join(folder, ...names), kind: "auths" as const }];
  return [
    ...below(env.REGISTRY_AUTH_FILE).map((place) => ({ ...place, named: true as const })),
    ...below(env.XDG_RUNTIME_DIR, "containers", "auth.json"),
    ...below(env.XDG_CONFIG_HOME || (home && join(home, ".config")), "containers", "auth.json"),
    ...below(env.DOCKER_CONFIG || (home && join(home, ".docker")), "config.json"),
    ...(home === undefined ? [] : [{ path: join(home, ".dockercfg"), kind: "dockercfg" as const }]),
  ];
}

/** Finds logins in this user's files, asking the credential helpers that they name. */
export function localLogins({ env, runner, emit }: { env: Env; runner: Runner; emit: Emit }): FindCredential {
  const warned = new Set<string>();
  const warn = (text: string) => {
    if (!warned.has(text)) emit({ kind: "warning", text });
    warned.add(text);
  };
  let files: Promise<LoginFile[]> | undefined;
  return async (host, repository, signal) => {
    files ??= Promise.all(filesOf(env).map(async ({ path, kind, named }) => await read(path, kind, warn, named)));
    for (const file of await files) {
      const helper = matching(file.credHelpers ?? {}, host, repository)?.[1] ?? file.credsStore ?? undefined;
      const held = helper === undefined ? undefined : await askHelper(helper, host, { env, runner, warn }, signal);
      const [key, login] = matching(file.auths ?? {}, host, repository) ?? [];
      const found = held ?? credentialOf(login);
      if (found !== undefined) return found;
      if (login?.auth) warn(`the login for ${key} is not used: its 'auth' is not user:password in base64`);
    }
    return undefined;
  };
}

/** Registries that this user's files name, by their common names; credential stores are not opened for it. */
export async function loginHosts(env: Env): Promise<string[]> {
  const files = await Promise.all(filesOf(env).map(({ path, kind }) => read(path, kind, () => {})));
  const keys = files.flatMap((
    { auths, credHelpers },
  ) => [...Object.keys(auths ?? {}), ...Object.keys(credHelpers ?? {})]);
  return [...new Set(keys.map((key) => prefixOf(key).split("/")[0]!).filter((host) => host !== ""))];
}

async function read(
  path: string,
  kind: LoginPlace["kind"],
  warn: (text: string) => void,
  named = false,
): Promise<LoginFile> {
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (error) {
    if (named || !["ENOENT", "ENOTDIR"].includes(errno(error) ?? "")) {
      warn(`logins in ${path} are not used: ${reasonOf(error)}`);
    }
    return {};
  }
  try {
    const value: unknown = text.trim() === "" ? {} : JSON.parse(text);
    return LoginFile.parse(kind === "dockercfg" ? { auths: value } : value);
  } catch (error) {
    const where = error instanceof z.ZodError
      ? `${error.issues[0]!.path.join(".")} has another form`
      : "it is not JSON";
    warn(`logins in ${path} are not used: ${where}`);
    return {};
  }
}

/** The entry whose key names the image most closely. */
export function matching<T>(table: Record<string, T>, host: string, repository: string): [string, T] | undefined {
  const name = `${host}/${repository}`;
  let best: [string, T] | undefined;
  let longest = -1;
  for (const [key, value] of Object.entries(table)) {
    const prefix = prefixOf(key);
    if ((name === prefix || name.startsWith(`${prefix}/`)) && prefix.length > longest) {
      [best, longest] = [[key, value], prefix.length];
    }
  }
  return best;
}

/** A key as a prefix of `host/repository`: an address (`https://index.docker.io/v1/`) counts as its host. */
function prefixOf(key: string): string {
  const address = /^https?:\/\/([^/]*)/.exec(key);
  const [host = "", ...path] = (address?.[1] ?? key).replace(/\/+$/, "").split("/");
  return [registryHost(host), ...path].join("/");
}

function credentialOf(login: Login | undefined): Credential | undefined {
  if (login === undefined) return undefined;
  if (login.identitytoken) return { kind: "identity", token: login.identitytoken };
  const text = login.auth ? Buffer.from(login.auth, "base64").toString("utf8").replace(/\0+$/, "") : undefined;
  const colon = text?.indexOf(":") ?? -1;
  const username = colon > 0 ? text!.slice(0, colon) : login.username;
  const password = colon > 0 ? text!.slice(colon + 1) : login.password;
  return username && password ? { kind: "basic", username, password } : undefined;
}

async function askHelper(
  helper: string,
  host: string,
  { env, runner, warn }: { env: Env; runner: Runner; warn: (text: string) => void },
  signal: AbortSignal,
): Promise<Credential | undefined> {
  const program = `docker-credential-${helper}`;
  if (!/^[\w.-]+$/.test(helper)) return void warn(`credential helper '${helper}' is not used: it is no program's name`);
  try {
    const result = await runner.run([program, "get"], {
      stdin: host === HUB ? HUB_KEY : host,
      deadlineMs: HELPER_MS,
      env: inheritedEnv(env),
      signal,
    });
    signal.throwIfAborted();
    if (result.ended === "deadline") return void warn(`${program} gave no answer within ${HELPER_MS / 1000} s`);
    if (result.exitCode !== 0) {
      // Helpers print "credentials not found in native keychain" to stdout; anything else is worth a word.
      if (!/not found/i.test(result.stdout + result.stderr)) warn(`${program} failed with exit ${result.exitCode}`);
      return undefined;
    }
    const { Username, Secret } = HelperReply.parse(JSON.parse(result.stdout));
    if (Secret === "") return undefined;
    return Username === "<token>"
      ? { kind: "identity", token: Secret }
      : { kind: "basic", username: Username, password: Secret };
  } catch (error) {
    signal.throwIfAborted();
    if (isAbort(error)) throw error;
    // A parser's message quotes what it read: the secret.
    const unreadable = error instanceof SyntaxError || error instanceof z.ZodError;
    return void warn(unreadable ? `${program} answered with something else than a login` : messageOf(error));
  }
}
