/**
 * The command table and the way from an argv to an exit code. Commands load lazily, so `--version` costs no parser.
 * A command module exports `parse(argv) → Options` (pure) and `run(options, ctx) → exit code`.
 */
import type { Context } from "../lib/context.ts";
import { EXIT, exitCodeOf, HarborError, isAbort } from "../lib/errors.ts";
import { HelpShown } from "./_options.ts";

export interface CommandModule<O> {
  parse(argv: string[]): O;
  run(options: O, ctx: Context): Promise<number>;
}

export interface Entry {
  /** Canonical words (`dataset validate`). */
  name: string;
  /** Other spellings (`validate`). */
  aliases: string[];
  about: string;
  /** Absent: part of the contract, not in this version. */
  load?: () => Promise<CommandModule<unknown>>;
  /** Not shown in help. */
  hidden?: boolean;
}

// deno-lint-ignore no-explicit-any -- a table of modules with different options: parse and run of one entry agree
const lazy = (load: () => Promise<CommandModule<any>>): () => Promise<CommandModule<unknown>> => load;

export const COMMANDS: Entry[] = [
  {
    name: "version",
    aliases: ["--version", "-V"],
    about: "print the version",
    load: lazy(() => import("./version.ts")),
  },
];

/** Runs one command line. Never throws: what went wrong is printed and becomes the exit code. */
export async function main(argv: readonly string[], ctx: Context): Promise<number> {
  try {
    const found = find(argv);
    const module = await found.entry.load!();
    return await module.run(module.parse(found.rest), ctx);
  } catch (error) {
    return report(error, ctx);
  }
}

function find(argv: readonly string[]): { entry: Entry; rest: string[] } {
  for (const words of [2, 1]) {
    const name = argv.slice(0, words).join(" ");
    const entry = COMMANDS.find((one) => one.name === name || one.aliases.includes(name));
    if (entry?.load !== undefined) return { entry, rest: argv.slice(words) };
  }
  throw new HarborError("usage", `unknown command '${argv[0] ?? ""}'`);
}

function report(error: unknown, ctx: Context): number {
  if (error instanceof HelpShown) {
    ctx.out(error.text.trimEnd());
    return EXIT.ok;
  }
  if (error instanceof HarborError) {
    ctx.note(`error[${error.code}]: ${error.message}`);
    if (error.hint !== undefined) ctx.note(`hint: ${error.hint}`);
    return exitCodeOf(error.code);
  }
  if (isAbort(error)) return EXIT.interrupted;
  ctx.note(`bug: ${error instanceof Error ? error.stack : error}`);
  return EXIT.no;
}
