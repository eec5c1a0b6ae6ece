/** The environment that programs inherit from us. */
import process from "node:process";

/**
 * Names that would make a child of ours behave as a runtime instead of a program: `BUN_OPTIONS` preloads code into
 * any Bun build, `BUN_BE_BUN` turns the binary into bun itself (Bun 1.4.5).
 */
const STEERING = /^(BUN_OPTIONS|BUN_BE_BUN|BUN_INSPECT.*|NODE_OPTIONS)$/;

/** Our environment as a child may see it. */
export function inheritedEnv(env: Readonly<Record<string, string | undefined>> = process.env): Record<string, string> {
  const kept: Record<string, string> = {};
  for (const [name, value] of Object.entries(env)) {
    if (value !== undefined && !STEERING.test(name)) kept[name] = value;
  }
  return kept;
}
