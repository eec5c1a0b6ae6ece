/**
 * `env.yaml` in the working directory: the same keys as overrides, nested or dotted; the command line wins over it, it
 * wins over the environment (images §1.3 step 5). What is not ours in it (NeMo Gym keeps model settings there) is named.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parse as parseYaml } from "yaml";
import { errno, HarborError, messageOf } from "../lib/errors.ts";
import { reasonOf } from "../lib/files/reason.ts";

export const ENV_YAML = "env.yaml";

/** The file as dotted keys in its order; a list is a value. Throws HarborError "usage" for one that cannot be read. */
export function readEnvYaml(cwd: string): [key: string, value: unknown][] {
  const path = join(cwd, ENV_YAML);
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    if (errno(error) === "ENOENT") return [];
    throw unreadable(path, reasonOf(error));
  }
  let value: unknown;
  try {
    value = parseYaml(text) as unknown;
  } catch (error) {
    throw unreadable(path, messageOf(error).split("\n", 1)[0]!);
  }
  if (value === null || value === undefined) return [];
  if (!isTable(value)) throw unreadable(path, "it holds no table of keys");
  return leaves(value, "");
}

const unreadable = (path: string, why: string): HarborError =>
  new HarborError("usage", `Cannot read ${path}: ${why}`, {
    hint: "it holds keys as overrides spell them, for example builds: {tool: podman}",
  });

const isTable = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const leaves = (table: Record<string, unknown>, above: string): [string, unknown][] =>
  Object.entries(table).flatMap(([key, value]): [string, unknown][] =>
    isTable(value) && Object.keys(value).length > 0 ? leaves(value, `${above}${key}.`) : [[`${above}${key}`, value]]
  );
