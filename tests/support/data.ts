/** Vectors and whole trees that lie outside the repository, found through GYM_HARBOR_DATA (a folder laid out like shared/). */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";

/** A path below GYM_HARBOR_DATA, or undefined when it is unset or holds no such thing. */
export function dataPath(...parts: string[]): string | undefined {
  const root = process.env.GYM_HARBOR_DATA;
  const path = root === undefined || root === "" ? undefined : join(root, ...parts);
  return path !== undefined && existsSync(path) ? path : undefined;
}

/** Rows of a JSONL file below GYM_HARBOR_DATA; none when it is absent. */
// deno-lint-ignore no-explicit-any -- vectors are read as they were written
export function dataRows(...parts: string[]): any[] {
  const path = dataPath(...parts);
  if (path === undefined) return [];
  return readFileSync(path, "utf8").trim().split("\n").map((line) => JSON.parse(line));
}
