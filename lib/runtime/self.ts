/**
 * How this program starts itself again (the relay inside a sandbox's network namespace), compiled or from source.
 * In a Bun binary `import.meta.url` lies under `/$bunfs/` and `process.execPath` is the real file; a `deno compile`
 * binary runs from a virtual folder below a `deno-compile-` prefix.
 */
import process from "node:process";
import { join } from "node:path";

export type RuntimeName = "deno" | "bun" | "node";

export const runtimeName: RuntimeName = "Deno" in globalThis ? "deno" : "Bun" in globalThis ? "bun" : "node";

export const runtimeVersion: string = (process.versions as Record<string, string | undefined>)[runtimeName] ?? "";

/** Whether we run as the single compiled file. */
export const compiled: boolean = import.meta.url.includes("$bunfs") || import.meta.url.includes("deno-compile-");

/**
 * The name this program was called by, for its help: `gym` and `ng` (links to the one file, or copies of it) answer
 * like `gym-harbor`. Any other name, and a start from source, is `gym-harbor`.
 */
export function nameOf(argv0: string): string {
  const name = argv0.slice(argv0.lastIndexOf("/") + 1);
  return name === "gym" || name === "ng" ? name : "gym-harbor";
}

export const programName: string = compiled ? nameOf(process.argv0) : "gym-harbor";

/** The compiled file; from source, the runtime. */
export const selfPath: string = process.execPath;

/** The argv that starts this program again with `args`. */
export function selfArgv(args: readonly string[]): string[] {
  if (compiled) return [process.execPath, ...args];
  const main = join(import.meta.dirname!, "..", "..", "main.ts");
  const run = runtimeName === "deno" ? ["run", "-A", "--quiet", main] : [main];
  return [process.execPath, ...run, ...args];
}
