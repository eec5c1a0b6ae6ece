/** Where a registry is asked: its mirrors in their order, then itself (spec/images-and-sandboxes §5.1, §5.5). Pure. */
import { HUB, HUB_API, isLoopback, type Reference, registryHost } from "../images/reference.ts";
import type { RegistrySettings } from "./settings.ts";
import type { Purpose } from "./tokens.ts";

export interface Endpoint {
  /** Common name, by which credentials and limits are kept: `docker.io`, `mirror.local:5000`. */
  host: string;
  /** `https://registry-1.docker.io`; no slash at the end. */
  origin: string;
  /** Path of a mirror, which stands before the repository: `cache/` or nothing. */
  prefix: string;
  mirror: boolean;
}

/** Never empty; the registry itself is the last one. */
export function endpointsOf(host: string, settings: RegistrySettings): Endpoint[] {
  const setting = settings.get(host);
  return [
    ...(setting?.mirrors ?? []).map((address): Endpoint => {
      const url = new URL(address);
      const prefix = url.pathname.replace(/^\/+|\/+$/g, "");
      return {
        host: registryHost(url.host),
        origin: url.origin,
        prefix: prefix === "" ? "" : `${prefix}/`,
        mirror: true,
      };
    }),
    {
      host,
      origin: `${isPlain(host, settings) ? "http" : "https"}://${host === HUB ? HUB_API : host}`,
      prefix: "",
      mirror: false,
    },
  ];
}

/** Whether a host is spoken to without TLS: loopback, or by the user's word. */
export function isPlain(host: string, settings: RegistrySettings): boolean {
  return isLoopback(host) || settings.get(host)?.insecure === true;
}

/** `<origin>/v2/<repository>/<rest>`. */
export const urlOf = (endpoint: Endpoint, reference: Reference, rest: string): URL =>
  new URL(`${endpoint.origin}/v2/${endpoint.prefix}${reference.repository}/${rest}`);

/** What credentials for it must allow. */
export const purposeOf = (endpoint: Endpoint, reference: Reference, actions: Purpose["actions"]): Purpose => ({
  host: endpoint.host,
  origin: endpoint.origin,
  repository: `${endpoint.prefix}${reference.repository}`,
  actions,
});
