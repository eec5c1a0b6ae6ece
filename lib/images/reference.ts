/**
 * Image references in every spelling that people write (spec/images-and-sandboxes §5.1). Pure.
 *
 * Docker Hub has several names (`docker.io`, `index.docker.io`, `registry-1.docker.io`, none at all) and is one registry
 * here: `docker.io`. A pin of a Hub image carries no host (`library/debian@sha256:…`), as NeMo Gym's records spell it.
 */
import { HarborError } from "../errors.ts";

export const HUB = "docker.io";
/** Where Docker Hub serves its API. */
export const HUB_API = "registry-1.docker.io";
const HUB_NAMES = new Set([HUB, "index.docker.io", HUB_API]);

export interface Reference {
  /** As it was written. */
  written: string;
  /** Registry by its common name: `docker.io`, `127.0.0.1:5000`. */
  host: string;
  /** Path below the registry: `library/debian`, `org/name`. */
  repository: string;
  /** `latest` when neither a tag nor a digest was written; undefined when only a digest was. */
  tag?: string;
  /** `sha256:` and 64 hex digits. */
  digest?: string;
}

const COMPONENT = /^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*$/;
const TAG = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$/;
const DIGEST = /^sha256:[0-9a-f]{64}$/;
/** `host`, `host:port` or `[v6]:port`. */
export const HOST = /^(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::\d{1,5})?$/;

/** Where a login (`user:password@`) before the host ends; 0 without one. Only a digest may stand behind an `@`. */
function loginEnd(text: string): number {
  const last = text.lastIndexOf("@");
  const isDigest = /^sha\d+:[0-9a-f]*$/i.test(text.slice(last + 1));
  const end = isDigest ? text.slice(0, last).lastIndexOf("@") : last;
  return /[/.:]/.test(text.slice(end + 1)) ? end + 1 : 0;
}

/** Throws HarborError "usage" that names the part which is wrong. */
export function parseReference(written: string): Reference {
  const text = written.replace(/^docker:\/\//, "");
  const login = loginEnd(text);
  const refuse = (why: string): never => {
    throw new HarborError("usage", `'${text.slice(login)}' is not an image reference: ${why}`, {
      hint: "write [host[:port]/]path[:tag][@sha256:<64 hex digits>]",
    });
  };
  if (login > 0) refuse("it carries a login; docker login and podman login keep those");
  if (/^\w+:\/\//.test(text)) refuse("it is an address, and a reference begins with its host");
  const at = text.indexOf("@");
  const digest = at < 0 ? undefined : text.slice(at + 1);
  if (digest !== undefined && !DIGEST.test(digest)) refuse(`its digest '${digest}' is not sha256 and 64 hex digits`);
  const name = at < 0 ? text : text.slice(0, at);
  const colon = name.lastIndexOf(":");
  const tagged = colon > name.lastIndexOf("/");
  const tag = tagged ? name.slice(colon + 1) : undefined;
  if (tag !== undefined && !TAG.test(tag)) refuse(`its tag '${tag}' has a character that tags cannot have`);
  const path = tagged ? name.slice(0, colon) : name;
  const [first, ...rest] = path.split("/") as [string, ...string[]];
  const hasHost = rest.length > 0 && (/[.:]/.test(first) || first === "localhost");
  if (hasHost && !HOST.test(first)) refuse(`'${first}' is not a host`);
  const host = hasHost ? registryHost(first) : HUB;
  let repository = hasHost ? rest.join("/") : path;
  if (repository === "") refuse("it names no repository");
  if (host === HUB && !repository.includes("/")) repository = `library/${repository}`;
  const bad = repository.split("/").find((component) => !COMPONENT.test(component));
  if (bad !== undefined) {
    refuse(`'${bad}' is not a path component (lower-case letters, digits, and . _ - between them)`);
  }
  if (host.length + repository.length > 254) refuse("it is longer than 255 characters");
  return {
    written,
    host,
    repository,
    ...(tag !== undefined ? { tag } : digest === undefined && { tag: "latest" }),
    ...(digest !== undefined && { digest }),
  };
}

/** The common name of a registry's host: all of Docker Hub's are `docker.io`; host names know no case. */
export function registryHost(name: string): string {
  const host = name.toLowerCase();
  return HUB_NAMES.has(host) ? HUB : host;
}

/** One spelling for equal references: `docker.io/library/debian:12`, with the digest when there is one. */
export function canonical({ host, repository, tag, digest }: Reference): string {
  return `${host}/${repository}${tag === undefined ? "" : `:${tag}`}${digest === undefined ? "" : `@${digest}`}`;
}

/** The reference by digest alone: host-less for Docker Hub, with `library/` (spec §2.2). */
export function pinnedTo({ host, repository }: Reference, digest: string): string {
  return `${host === HUB ? "" : `${host}/`}${repository}@${digest}`;
}

/** Whether plain HTTP is the rule for this host: only on loopback. */
export function isLoopback(host: string): boolean {
  const name = host.replace(/:\d+$/, "");
  return name === "localhost" || /^127\.\d+\.\d+\.\d+$/.test(name) || name === "[::1]" || name === "::1";
}

/** Whether a name says by digest what it means, wherever it is read. Any text may be asked. */
export const isPinned = (name: string): boolean => /@sha256:[0-9a-f]{64}$/.test(name);
