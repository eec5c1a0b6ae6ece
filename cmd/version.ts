/** `--version`: who we are, for people and (`--json`) for programs. */
import type { Context } from "../lib/context.ts";
import { EXIT } from "../lib/errors.ts";
import { versionFacts } from "../lib/runtime/version.ts";

export interface Options {
  json: boolean;
}

/** No parser library here: this is the start-up path that scripts poll. */
export const parse = (argv: string[]): Options => ({ json: argv.includes("--json") });

export function run(options: Options, ctx: Context): Promise<number> {
  const facts = versionFacts();
  ctx.out(options.json ? JSON.stringify(facts) : `gym-harbor ${facts.version}`);
  return Promise.resolve(EXIT.ok);
}
