/**
 * What a registry's failure is called (spec/images-and-sandboxes §2.5, §5.5). Callers put the reference before it.
 *
 * No text here ever holds a token, a password, the query of an address (signed links are secrets) or its user part.
 */
import { type ErrorFacts, HarborError, messageOf } from "../errors.ts";
import { beginning } from "../excerpt.ts";
import { HUB } from "../images/reference.ts";
import { visible } from "../runtime/terminal.ts";

/** What to do about a pull limit: one line each. */
export const PULL_LIMIT_ADVICE: readonly string[] = [
  "log in with the build tool (docker login, podman login, buildah login): accounts have higher limits",
  "give an account by REGISTRY_AUTH_FILE or DOCKER_CONFIG",
  "start one job and wait for 'Run config written to ...' before the others: they then read its records",
  "use a mirror: 'registries.docker.io.mirrors=[https://mirror.local]'",
  "use an offline bundle: gym-harbor bundle export where there is a network, --offline here",
];

/** Why an endpoint did not give what was asked, beyond the text. */
export interface RegistryFacts {
  host: string;
  status?: number;
  /** The registry's own code, such as `MANIFEST_UNKNOWN`. */
  reason?: string;
}

export function registryError(message: string, facts: RegistryFacts, more: Omit<ErrorFacts, "details"> = {}) {
  return new HarborError("image.failed", message, { ...more, details: { ...facts } });
}

/** `registry returned HTTP <status> for <path>`, the registry's own words behind it. */
export function statusError(host: string, status: number, path: string, body: string, html: boolean): HarborError {
  const said = html ? "a web page, not a registry's answer" : saidBy(body);
  return registryError(
    `registry returned HTTP ${status} for ${path}${said === "" ? "" : ` (${said})`}`,
    { host, status, ...reasonIn(body) },
    { hint: hintFor(host, status, html) },
  );
}

function hintFor(host: string, status: number, html: boolean): string | undefined {
  if (status === 429) return PULL_LIMIT_ADVICE.join("\n");
  if (html) return `something between here and ${host} answers in its place: a login page, or a proxy (HTTPS_PROXY)?`;
  if (status === 401 || status === 403) return `log in: docker login ${host}, or podman login ${host}`;
  if (status === 404) {
    return host === HUB
      ? "Docker Hub also says 404 for a private image: check the spelling, or log in with docker login"
      : "check the spelling of repository and tag";
  }
  return undefined;
}

const errorsIn = (body: string): { code?: unknown; message?: unknown }[] => {
  try {
    const { errors } = JSON.parse(body) as { errors?: unknown };
    return Array.isArray(errors) ? errors.filter((one) => typeof one === "object" && one !== null) : [];
  } catch {
    return [];
  }
};

function saidBy(body: string): string {
  const [first] = errorsIn(body);
  const words = [first?.code, first?.message].filter((one) => typeof one === "string" && one !== "");
  return visible(beginning(withBareAddresses(words.join(": ").replace(/\s+/g, " ")), 200));
}

function reasonIn(body: string): { reason?: string } {
  const code = errorsIn(body)[0]?.code;
  return typeof code === "string" ? { reason: beginning(code, 60) } : {};
}

/** A text of the runtime's network code, fit to be shown: no query, no user part, no advice about its own options. */
export function networkReason(thrown: unknown): string {
  const inner = thrown instanceof Error && thrown.cause instanceof Error ? thrown.cause : thrown;
  return withBareAddresses(messageOf(inner)).replace(/ For more information, pass `verbose.*$/, "");
}

/** Addresses in a text lose their user part and their query. */
export function withBareAddresses(text: string): string {
  return text.replace(/(https?:\/\/)(?:[^\s/@]*@)?([^\s?#()"'<>]*)(?:[?#][^\s()"'<>]*)?/g, "$1$2");
}

/** Whether trying again cannot help: the other side has no or another TLS, or a certificate nobody vouches for. */
export function isTlsFault(reason: string): boolean {
  return /certificate|unknownissuer|self.signed|invalidcontenttype|eproto|tls handshake failed|wrong version number/i
    .test(reason);
}
