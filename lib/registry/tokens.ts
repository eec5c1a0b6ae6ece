/**
 * Answers to a registry's 401 (spec/images-and-sandboxes §5.3): Basic with the user's login, or a token of the realm
 * that the registry names. Tokens are kept for their lifetime and asked for once, by whoever comes first.
 */
import { Buffer } from "node:buffer";
import { z } from "zod";
import type { Clock } from "../runtime/clock.ts";
import { isLoopback } from "../images/reference.ts";
import { parseChallenges } from "./challenge.ts";
import { basicHeader, type Credential, type FindCredential } from "./credentials.ts";
import { registryError, statusError } from "./failure.ts";
import type { Answer, Request } from "./transport.ts";

export interface TokensDeps {
  clock: Clock;
  credentials: FindCredential;
  /** Sends one request, tried again where that helps; no authorization is added. */
  send: (request: Request, host: string, signal: AbortSignal) => Promise<Answer>;
  /** Hosts that may be spoken to without TLS, by the user's word. */
  plain: (host: string) => boolean;
}

/** What is asked of which registry: `host` by its common name. */
export interface Purpose {
  host: string;
  /** Where its API is; what goes elsewhere gets no credentials. */
  origin: string;
  repository: string;
  actions: "pull" | "pull,push";
}

const TokenReply = z.looseObject({
  token: z.string().optional(),
  access_token: z.string().optional(),
  expires_in: z.number().optional(),
});

const MOST_TOKEN_BYTES = 1024 * 1024;

export class Tokens {
  #headers = new Map<string, { header: string; until: number }>();
  #pending = new Map<string, Promise<string>>();

  constructor(private readonly deps: TokensDeps) {}

  /** The header to begin with; undefined when nothing is known yet. */
  known(purpose: Purpose): string | undefined {
    const kept = this.#headers.get(keyOf(purpose));
    return kept !== undefined && this.deps.clock.ticks() < kept.until ? kept.header : undefined;
  }

  /** The header that a 401 asks for. Throws "image.failed" when we have none, or the realm refuses. */
  async answer(purpose: Purpose, refused: Answer, signal: AbortSignal): Promise<string> {
    const key = keyOf(purpose);
    const asked = refused.headers.get("www-authenticate") ?? "";
    let pending = this.#pending.get(key);
    if (pending === undefined) {
      pending = this.#fetched(purpose, asked, refused, signal).finally(() => this.#pending.delete(key));
      this.#pending.set(key, pending);
    }
    return await pending;
  }

  async #fetched(purpose: Purpose, asked: string, refused: Answer, signal: AbortSignal): Promise<string> {
    const challenges = parseChallenges(asked);
    const bearer = challenges.find(({ scheme, parameters }) => scheme === "bearer" && parameters.realm !== undefined);
    const credential = await this.deps.credentials(purpose.host, purpose.repository, signal);
    let header: string;
    let lifetimeMs = Infinity;
    if (bearer !== undefined) {
      const reply = await this.#token(purpose, bearer.parameters, credential, signal);
      header = `Bearer ${reply.token}`;
      lifetimeMs = reply.lifetimeMs;
    } else if (challenges.some(({ scheme }) => scheme === "basic") && credential?.kind === "basic") {
      header = basicHeader(credential);
    } else {
      const schemes = challenges.map(({ scheme }) => scheme).join(", ");
      const why = challenges.some(({ scheme }) => scheme === "basic")
        ? `no login for ${purpose.host} is known`
        : schemes === ""
        ? "it does not say what credentials it wants"
        : `it wants '${schemes}', which is not known here`;
      throw registryError(
        `registry returned HTTP 401 for ${refused.path} (${why})`,
        { host: purpose.host, status: 401 },
        { hint: loginHint(purpose.host) },
      );
    }
    this.#headers.set(keyOf(purpose), { header, until: this.deps.clock.ticks() + lifetimeMs });
    return header;
  }

  async #token(
    purpose: Purpose,
    parameters: Record<string, string>,
    credential: Credential | undefined,
    signal: AbortSignal,
  ): Promise<{ token: string; lifetimeMs: number }> {
    const realm = URL.parse(parameters.realm!);
    if (realm === null || !/^https?:$/.test(realm.protocol)) {
      throw registryError(`${purpose.host} names a token realm that is no address`, { host: purpose.host });
    }
    [realm.username, realm.password] = ["", ""];
    const mayCarrySecrets = realm.protocol === "https:" || isLoopback(realm.host) || this.deps.plain(realm.host);
    if (credential !== undefined && !mayCarrySecrets) {
      throw registryError(
        `${purpose.host} wants credentials sent to ${realm.host} without TLS: refused`,
        { host: purpose.host },
        { hint: `registries.${realm.host}.insecure=true allows it` },
      );
    }
    const scope = parameters.scope ?? `repository:${purpose.repository}:${purpose.actions}`;
    const answer = await this.deps.send(
      tokenRequest(realm, parameters.service, scope, credential),
      realm.host,
      signal,
    );
    if (answer.status === 401 || answer.status === 403) {
      throw credentialsRefused(purpose.host, answer.status, answer.path);
    }
    if (answer.status !== 200) {
      throw statusError(realm.host, answer.status, answer.path, await answer.text(64 * 1024), answer.isHtml);
    }
    const body = await answer.bytes(MOST_TOKEN_BYTES, `the token of ${realm.host}`);
    const reply = TokenReply.safeParse(jsonOf(body));
    const token = reply.data?.token || reply.data?.access_token;
    if (token === undefined || !/^[\x21-\x7e]+$/.test(token)) {
      const what = answer.isHtml ? "a web page" : "something else";
      throw registryError(`${realm.host} answered with ${what} instead of a token`, { host: realm.host });
    }
    return { token, lifetimeMs: Math.max(0, (reply.data!.expires_in ?? 60) - 10) * 1000 };
  }
}

function tokenRequest(
  realm: URL,
  service: string | undefined,
  scope: string,
  credential: Credential | undefined,
): Request {
  const accept = "application/json";
  if (credential?.kind === "identity") {
    const form = new URLSearchParams({
      grant_type: "refresh_token",
      client_id: "gym-harbor",
      ...(service !== undefined && { service }),
      scope,
      refresh_token: credential.token,
    });
    const headers = { accept, "content-type": "application/x-www-form-urlencoded" };
    return { method: "POST", url: realm, headers, body: form.toString() };
  }
  const url = new URL(realm);
  if (service !== undefined) url.searchParams.set("service", service);
  url.searchParams.set("scope", scope);
  const authorization = credential === undefined ? undefined : basicHeader(credential);
  return { method: "GET", url, headers: { accept, ...(authorization !== undefined && { authorization }) } };
}

/** The end of a 401 that came again although it was answered: no loop. */
export function credentialsRefused(host: string, status: number, path: string) {
  return registryError(
    `credentials were refused: registry returned HTTP ${status} for ${path}`,
    { host, status },
    { hint: loginHint(host) },
  );
}

const loginHint = (host: string): string =>
  `log in again (docker login ${host}, podman login ${host}); a private or misspelt image is refused in the same way`;

const keyOf = ({ host, repository, actions }: Purpose): string => `${host} ${repository} ${actions}`;

function jsonOf(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("utf8"));
  } catch {
    return undefined;
  }
}
