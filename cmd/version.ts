/** `--version`: who we are, for people and (`--json`) for programs. */
import type { Context } from "../lib/context.ts";
import { EXIT, HarborError } from "../lib/errors.ts";
import { programName } from "../lib/runtime/self.ts";
import { versionFacts } from "../lib/runtime/version.ts";
import { HelpShown } from "./_help.ts";

export interface Options {
  json: boolean;
}

const HELP = `Usage: ${programName} --version [--json]

Prints the version; with --json also the commit, the runtime inside and the platform.`;

/** No parser library here: this is the start-up path that scripts poll. */
export function parse(argv: string[]): Options {
  for (const word of argv) {
    if (word === "-h" || word === "--help") throw new HelpShown(HELP);
    if (word !== "--json" && word !== "-v" && word !== "-q") {
      throw new HarborError("usage", `unknown ${word.startsWith("-") ? "option" : "argument"} '${word}'`, {
        hint: `${programName} --version takes --json and nothing else`,
      });
    }
  }
  return { json: argv.includes("--json") };
}

export function run(options: Options, ctx: Context): Promise<number> {
  const facts = versionFacts();
  ctx.out(options.json ? JSON.stringify(facts) : `gym-harbor ${facts.version}`);
  return Promise.resolve(EXIT.ok);
}
