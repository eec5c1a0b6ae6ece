/**
 * One request and its answer: redirects followed by hand, every wait bounded, bodies limited.
 *
 * `Authorization` goes to the host it was made for and to no other (RFC 9110 §15.4); from TLS to plain HTTP no redirect
 * is followed. Failures of the network are values here: whether to try again is decided above.
 */
import type { HarborError } from "../errors.ts";
import type { Clock } from "../runtime/clock.ts";
import { isTlsFault, networkReason, registryError } from "./failure.ts";

export interface TransportDeps {
  fetch: typeof fetch;
  clock: Clock;
  /** Sees one line per request, for --verbose; never a secret. */
  trace?: (line: string) => void;
}

export interface Request {
  method: "GET" | "HEAD" | "POST" | "PUT" | "PATCH";
  url: URL;
  headers: Record<string, string>;
  body?: string | Blob | Uint8Array<ArrayBuffer>;
  /** Time for the head of the answer, in milliseconds; an upload takes its time before it. */
  answerMs?: number;
}

const REDIRECTS = new Set([301, 302, 303, 307, 308]);
const MOST_REDIRECTS = 5;
/** Time for the head of an answer, and the longest silence inside a body. */
const ANSWER_MS = 30_000;
const SILENCE_MS = 60_000;

/** A failure of the network on the way to `host`; `lasting` when another try cannot help. */
export interface Unreachable {
  error: HarborError;
  lasting: boolean;
}

export type Exchange = { answer: Answer } | { unreachable: Unreachable };

/** Sends it. Rejects only with the signal's reason, or for a redirect that is refused. */
export async function exchange(deps: TransportDeps, request: Request, signal: AbortSignal): Promise<Exchange> {
  const { origin } = request.url;
  let { url, method, body } = request;
  const { answerMs = ANSWER_MS } = request;
  const headers: Record<string, string> = { "user-agent": "gym-harbor", ...request.headers };
  for (let hops = 0;; hops++) {
    const sent = await send(deps, { method, url, headers, body, answerMs }, signal);
    if ("unreachable" in sent) return sent;
    const { answer } = sent;
    const location = REDIRECTS.has(answer.status) ? answer.headers.get("location") : null;
    deps.trace?.(traceLine(method, url, answer));
    if (location === null) return sent;
    await answer.discard();
    if (hops >= MOST_REDIRECTS) {
      throw registryError(`more than ${MOST_REDIRECTS} redirects for ${request.url.pathname}`, { host: url.host });
    }
    const next = nextHop(url, location);
    // What we send may be a secret (an identity token); only the host it was made for gets it.
    if (body !== undefined && next.origin !== origin && answer.status >= 307) {
      throw registryError(`${url.host} redirects what we send to ${next.host}: not followed`, { host: url.host });
    }
    if (answer.status === 303 || (answer.status < 307 && method === "POST")) [method, body] = ["GET", undefined];
    if (next.origin !== origin) delete headers.authorization; // for good: a way back is somebody else's choice
    url = next;
  }
}

function nextHop(from: URL, location: string): URL {
  const url = URL.parse(location, from);
  if (url === null || !/^https?:$/.test(url.protocol)) {
    throw registryError(`${from.host} redirects to an address that is none`, { host: from.host });
  }
  if (from.protocol === "https:" && url.protocol === "http:") {
    throw registryError(`${from.host} redirects to ${url.host} without TLS: not followed`, { host: from.host });
  }
  [url.username, url.password] = ["", ""];
  return url;
}

function traceLine(method: string, url: URL, answer: Answer): string {
  const left = answer.headers.get("ratelimit-remaining");
  return `${method} ${url.origin}${url.pathname} -> ${answer.status}${left === null ? "" : ` (pulls left: ${left})`}`;
}

async function send(deps: TransportDeps, request: Request, signal: AbortSignal): Promise<Exchange> {
  signal.throwIfAborted();
  const { method, url, headers, body, answerMs = ANSWER_MS } = request;
  const stop = new AbortController();
  let late = false;
  const timer = deps.clock.after(answerMs, () => {
    late = true;
    stop.abort(new Error("late"));
  });
  try {
    const response = await deps.fetch(url, {
      method,
      headers,
      redirect: "manual",
      signal: AbortSignal.any([signal, stop.signal]),
      ...(body !== undefined && { body }),
    });
    return { answer: new Answer(response, url, deps.clock, stop, signal) };
  } catch (cause) {
    signal.throwIfAborted();
    const reason = late ? `no answer within ${Math.round(answerMs / 1000)} s` : networkReason(cause);
    return { unreachable: unreachable(url, reason) };
  } finally {
    timer[Symbol.dispose]();
  }
}

/** Without its cause, whose text may hold the whole address. */
function unreachable(url: URL, reason: string): Unreachable {
  const lasting = isTlsFault(reason);
  const hint = !lasting
    ? "is the address right, and does HTTPS_PROXY or NO_PROXY stand in the way?"
    : url.protocol === "https:"
    ? `registries.${url.host}.insecure=true asks by plain HTTP; NODE_EXTRA_CA_CERTS=FILE adds a certificate authority`
    : "this registry may speak TLS only";
  return { lasting, error: registryError(`cannot reach ${url.host}: ${reason}`, { host: url.host }, { hint }) };
}

/** The head of an answer; its body is read once, by one of the methods, or discarded. */
export class Answer {
  readonly status: number;
  readonly headers: Headers;

  constructor(
    private readonly response: Response,
    private readonly url: URL,
    private readonly clock: Clock,
    private readonly stop: AbortController,
    private readonly signal: AbortSignal,
  ) {
    this.status = response.status;
    this.headers = response.headers;
  }

  get host(): string {
    return this.url.host;
  }

  get path(): string {
    return this.url.pathname;
  }

  /** A page for people: a login portal or a proxy speaks here. */
  get isHtml(): boolean {
    return /^\s*(?:text\/html|application\/xhtml)/i.test(this.headers.get("content-type") ?? "");
  }

  /** The whole body. Throws "image.failed" when it is larger than `limit` bytes or breaks off. */
  async bytes(limit: number, what: string): Promise<Uint8Array> {
    const chunks: Uint8Array[] = [];
    let length = 0;
    for await (const chunk of this.stream()) {
      length += chunk.length;
      if (length > limit) throw registryError(`${what} is larger than ${limit} bytes`, { host: this.host });
      chunks.push(chunk);
    }
    const whole = new Uint8Array(length);
    let at = 0;
    for (const chunk of chunks) {
      whole.set(chunk, at);
      at += chunk.length;
    }
    return whole;
  }

  /** At most `limit` bytes of text, for messages; never throws for a broken body. */
  async text(limit: number): Promise<string> {
    const decoder = new TextDecoder();
    let text = "";
    try {
      for await (const chunk of this.stream()) {
        text += decoder.decode(chunk, { stream: true });
        if (text.length >= limit) break;
      }
    } catch {
      this.signal.throwIfAborted();
    }
    return text.slice(0, limit);
  }

  /** The body as it comes. Throws "image.failed" for a broken connection or a long silence, or the signal's reason. */
  async *stream(): AsyncGenerator<Uint8Array> {
    const reader = this.response.body?.getReader();
    if (reader === undefined) return;
    let late = false;
    const next = async () => {
      // Only while we wait: a reader that takes its time is no fault of the registry.
      using _silence = this.clock.after(SILENCE_MS, () => {
        late = true;
        this.stop.abort(new Error("late"));
      });
      return await reader.read();
    };
    try {
      for (let part = await next(); !part.done; part = await next()) yield part.value;
    } catch (cause) {
      this.signal.throwIfAborted();
      const reason = late ? `silent for ${SILENCE_MS / 1000} s` : networkReason(cause);
      throw registryError(`the connection to ${this.host} broke off: ${reason}`, { host: this.host });
    } finally {
      await reader.cancel().catch(() => {});
    }
  }

  async discard(): Promise<void> {
    await this.response.body?.cancel().catch(() => {});
  }
}
