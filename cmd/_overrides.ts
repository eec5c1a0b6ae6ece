/**
 * Overrides: the words after the options that are `key=value` (decisions 23, evaluation §18). `key=v` sets a key that
 * there is, `+key=v` and `++key=v` also one that this version does not know; the last one wins. Pure.
 */
import { parse as parseYaml } from "yaml";
import { PROVIDERS } from "../providers/mod.ts";
import { attempting, HarborError } from "../lib/errors.ts";
import { SETTING_NAMES } from "../lib/episode/settings.ts";
import { buildOptions } from "../lib/images/options.ts";
import { type RegistrySettings, registrySettings } from "../lib/registry/settings.ts";
import { nearest } from "../lib/suggest.ts";

/** What was set, as nested tables below the known prefixes. */
export interface Overrides {
  harbor_environment_server: Record<string, unknown>;
  /** By sandbox. */
  sandbox: Record<string, Record<string, unknown>>;
  responses_create_params: Record<string, unknown>;
  gym: { defaults: { timeout_multiplier?: number; num_repeats?: number } };
  /** As given; lib/images/options.ts checks them. */
  builds: Record<string, unknown>;
  registries: RegistrySettings;
  /** Keys that have no effect in this version: said, never dropped in silence. */
  withoutEffect: string[];
}

/** Prefix → the keys below it; null: any key. */
const KNOWN: Record<string, readonly string[] | null> = {
  builds: null,
  sandbox: null,
  registries: null,
  run: [],
  harbor_environment_server: SETTING_NAMES,
  responses_create_params: null,
  gym: ["defaults.timeout_multiplier", "defaults.num_repeats"],
};

/** Shorter spellings (`host.run` is `sandbox.host.run`). */
const ALIASES: Record<string, string> = { host: "sandbox.host" };

/**
 * What the command line sets, over `file` (env.yaml as dotted keys). Throws HarborError "usage" for a word that is no
 * override and for a key that nobody knows, with a did-you-mean.
 */
export function parseOverrides(words: readonly string[], file: readonly [string, unknown][] = []): Overrides {
  const overrides: Overrides = {
    harbor_environment_server: {},
    sandbox: {},
    responses_create_params: {},
    gym: { defaults: {} },
    builds: {},
    registries: new Map(),
    withoutEffect: [],
  };
  const registries: [string, unknown][] = [];
  const take = (key: string, value: unknown, added: boolean): void => {
    if (key.startsWith("registries.")) return void registries.push([key.slice("registries.".length), value]);
    const path = checkedPath(key, added);
    const [prefix, ...rest] = path;
    const known = KNOWN[prefix!];
    const noSandbox = prefix === "sandbox" && !PROVIDERS.some(({ name }) => name === rest[0]);
    if (noSandbox || (known !== null && !isBelow(rest.join("."), known!))) overrides.withoutEffect.push(path.join("."));
    else set(overrides as unknown as Record<string, unknown>, path, value);
  };
  try {
    for (const [key, value] of file) {
      if (isForeign(key)) overrides.withoutEffect.push(`env.yaml: ${key}`);
      else take(key, value, false);
    }
    buildOptions(overrides.builds, {});
    registrySettings(registries);
    checkGym(overrides.gym.defaults);
  } catch (error) {
    throw attempting("env.yaml", "usage", error);
  }
  for (const word of words) {
    const match = /^(\+{0,2})([^=+]+)=([^]*)$/.exec(word);
    if (match === null) throw notAnOverride(word);
    const [, plus, key, text] = match as unknown as [string, string, string, string];
    take(key, valueOf(text, key), plus !== "");
  }
  checkGym(overrides.gym.defaults);
  return { ...overrides, registries: registrySettings(registries) };
}

/** A key of another program in the same file, and no misspelt one of ours. */
function isForeign(key: string): boolean {
  const [first] = key.split(".") as [string];
  const known = [...Object.keys(KNOWN), ...Object.keys(ALIASES)];
  return !known.includes(first) && nearest(first, known) === undefined;
}

function notAnOverride(word: string): HarborError {
  const sweep = /^~/.test(word) ? ": taking keys out (~key) is not in this version" : "";
  return new HarborError("usage", `'${word}' is neither an option nor an override${sweep}`, {
    hint: "overrides are key=value, +key=value or ++key=value after the options",
  });
}

function checkedPath(key: string, added: boolean): string[] {
  const [first, ...more] = key.split(".");
  const path = [...(ALIASES[first!] ?? first!).split("."), ...more];
  const known = Object.hasOwn(KNOWN, path[0]!) ? KNOWN[path[0]!] : undefined;
  const near = (candidates: Iterable<string>, word: string) => {
    const found = nearest(word, candidates);
    return found === undefined ? "" : `did you mean ${found}? `;
  };
  if (known === undefined || path.length < 2 || path.includes("")) {
    const prefixes = Object.keys(KNOWN);
    const close = nearest(path[0]!, prefixes);
    throw new HarborError("usage", `unknown key '${key}'`, {
      hint:
        `${close === undefined || close === path[0] ? "" : `did you mean ${[close, ...path.slice(1)].join(".")}? `}` +
        `keys begin with ${prefixes.map((one) => `${one}.`).join(", ")}`,
    });
  }
  const sandboxes = PROVIDERS.map(({ name }) => name);
  if (path[0] === "sandbox" && !added && !sandboxes.some((name) => name === path[1])) {
    const close = nearest(path[1]!, sandboxes);
    const meant = close === undefined ? "" : `did you mean ${["sandbox", close, ...path.slice(2)].join(".")}? `;
    throw new HarborError("usage", `unknown sandbox '${path[1]}' in '${key}'`, {
      hint: `${meant}there are ${sandboxes.join(", ")}`,
    });
  }
  const rest = path.slice(1).join(".");
  if (known !== null && !added && !isBelow(rest, known)) {
    throw new HarborError("usage", `unknown key '${key}'`, {
      hint: `${near(known.map((one) => `${path[0]}.${one}`), key)}++${key}=… sets it all the same`,
    });
  }
  return path;
}

/** Whether a key is one of `names`, or inside one. */
const isBelow = (key: string, names: readonly string[]): boolean =>
  names.some((name) => key === name || key.startsWith(`${name}.`));

/** A number, true, false, null, a quoted text, `[a,b]`, `{k: v}`, else the text itself. */
function valueOf(text: string, key: string): unknown {
  if (/^[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?$/.test(text)) return Number(text);
  if (text === "true" || text === "false") return text === "true";
  if (text === "null" || text === "") return text === "null" ? null : "";
  if (!/^["'[{]/.test(text)) {
    if (!text.includes(",")) return text;
    throw new HarborError("usage", `${key}=${text}: a list of values to try one by one is not in this version`, {
      hint: `for a list write ${key}=[${text}], for a text ${key}='"${text}"'`,
    });
  }
  try {
    return parseYaml(text) as unknown;
  } catch {
    throw new HarborError("usage", `${key}=${text} is not a value: brackets or quotes do not close`, {
      hint: "quote it for the shell, for example 'key=[1, 2]' or 'key=\"a b\"'",
    });
  }
}

function set(tables: Record<string, unknown>, path: readonly string[], value: unknown): void {
  const [key, ...rest] = path as [string, ...string[]];
  if (["__proto__", "constructor", "prototype"].includes(key)) {
    throw new HarborError("usage", `unknown key '${key}'`, { hint: "choose another name" });
  }
  if (rest.length === 0) {
    tables[key] = value;
    return;
  }
  const inner = tables[key];
  if (typeof inner !== "object" || inner === null || Array.isArray(inner)) tables[key] = {};
  set(tables[key] as Record<string, unknown>, rest, value);
}

function checkGym(defaults: Overrides["gym"]["defaults"]): void {
  const { timeout_multiplier, num_repeats } = defaults as Record<string, unknown>;
  if (timeout_multiplier !== undefined && !(typeof timeout_multiplier === "number" && timeout_multiplier > 0)) {
    throw new HarborError("usage", `gym.defaults.timeout_multiplier is ${timeout_multiplier}, must be above 0`, {
      hint: "1 leaves the tasks' own limits as they are",
    });
  }
  if (num_repeats !== undefined && !(Number.isInteger(num_repeats) && (num_repeats as number) >= 1)) {
    throw new HarborError("usage", `gym.defaults.num_repeats is ${num_repeats}, must be a whole number from 1`, {
      hint: "--num-repeats N says the same",
    });
  }
}
