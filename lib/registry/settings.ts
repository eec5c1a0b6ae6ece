/**
 * What a user may say about registries: `registries.<host>.insecure` and `registries.<host>.mirrors`, by overrides or in
 * env.yaml (spec/images-and-sandboxes §5.1, §5.5). Pure.
 *
 * Hosts hold dots and a port, so a key is cut at its last dot; all of Docker Hub's names mean one registry.
 */
import { HarborError } from "../errors.ts";
import { HOST, registryHost } from "../images/reference.ts";
import { nearest } from "../suggest.ts";

export interface RegistrySetting {
  /** Plain HTTP instead of TLS. Loopback speaks it anyway. */
  insecure: boolean;
  /** Asked in this order before the registry itself, on the same path: `https://mirror.local[:port][/prefix]`. */
  mirrors: string[];
}

/** By the common name of the host (`registryHost`). */
export type RegistrySettings = ReadonlyMap<string, RegistrySetting>;

const OPTIONS = ["insecure", "mirrors"] as const;

/** `docker.io.mirrors` and its value, in the order they were given: the last one wins. Throws HarborError "usage". */
export function registrySettings(entries: Iterable<readonly [key: string, value: unknown]>): RegistrySettings {
  const settings = new Map<string, RegistrySetting>();
  for (const [key, value] of entries) {
    const { host, option } = cut(key);
    const setting = settings.get(host) ?? { insecure: false, mirrors: [] };
    const said = option === "insecure" ? { insecure: insecureOf(key, value) } : { mirrors: mirrorsOf(key, value) };
    settings.set(host, { ...setting, ...said });
  }
  return settings;
}

/** The same from a file's nested tables, whether a host is one quoted key or was cut at its dots. */
export function registryEntries(tables: Readonly<Record<string, unknown>>, above = ""): [string, unknown][] {
  return Object.entries(tables).flatMap(([key, value]): [string, unknown][] => {
    const name = `${above}${key}`;
    return typeof value === "object" && value !== null && !Array.isArray(value)
      ? registryEntries(value as Record<string, unknown>, `${name}.`)
      : [[name, value]];
  });
}

function cut(key: string): { host: string; option: typeof OPTIONS[number] } {
  const dot = key.lastIndexOf(".");
  const [written, name] = [key.slice(0, Math.max(0, dot)), key.slice(dot + 1)];
  const option = OPTIONS.find((one) => one === name);
  if (option === undefined || written === "") {
    const close = nearest(name, OPTIONS);
    const meant = close === undefined || written === "" ? "" : `did you mean registries.${written}.${close}? `;
    throw new HarborError("usage", `unknown key 'registries.${key}'`, {
      hint: `${meant}keys are registries.<host>.insecure and registries.<host>.mirrors`,
    });
  }
  if (!HOST.test(written)) {
    throw new HarborError("usage", `registries.${key}: '${written}' is not a host`, {
      hint: "write host or host:port, for example registries.registry.local:5000.insecure=true",
    });
  }
  return { host: registryHost(written), option };
}

function insecureOf(key: string, value: unknown): boolean {
  if (typeof value === "boolean") return value;
  throw new HarborError("usage", `registries.${key} is ${JSON.stringify(value)}, must be true or false`, {
    hint: "true asks that registry by plain HTTP",
  });
}

function mirrorsOf(key: string, value: unknown): string[] {
  const refuse = (said: unknown, why: string): never => {
    throw new HarborError("usage", `registries.${key} is ${JSON.stringify(said)}, ${why}`, {
      hint: `write 'registries.${key}=[https://mirror.local, http://127.0.0.1:5000]'; logins belong in docker login`,
    });
  };
  if (value === null || value === "") return [];
  const list: unknown[] = Array.isArray(value) ? value : [value];
  return list.map((one) => {
    if (typeof one !== "string" || one === "") return refuse(one, "must be a list of addresses");
    const text = /^[a-z]+:\/\//.test(one) ? one : `https://${one}`;
    const url = URL.parse(text);
    if (url === null || !/^https?:$/.test(url.protocol)) return refuse(one, "must be http:// or https:// addresses");
    // The value itself is not repeated: it holds a password.
    if (url.username !== "" || url.password !== "") return refuse("(hidden)", "must hold no user and password");
    if (url.search !== "" || url.hash !== "") return refuse(one, "must be an address without ? and #");
    return text.replace(/\/+$/, "");
  });
}
