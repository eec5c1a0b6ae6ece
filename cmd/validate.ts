/** `validate`: whether each task's reference solution passes its own verifier. */
import { oracle } from "../lib/agent/oracle.ts";
import type { Context } from "../lib/context.ts";
import { validateExit } from "../lib/report/exit.ts";
import { evaluateTarget } from "./_evaluate.ts";
import { parseWith } from "./_options.ts";
import { RunOptions, withRunOptions } from "./_run_options.ts";

export type Options = RunOptions;

export const parse = (argv: string[]): Options =>
  parseWith(argv, RunOptions, (command) =>
    withRunOptions(
      command.name("validate").description(
        "Runs each task's reference solution in a fresh sandbox, grades it with the task's verifier and prints a " +
          "table. Exit 0: every task loaded, and every solution that ran scored 1 or more.",
      ),
    ));

export const run = (options: Options, ctx: Context): Promise<number> =>
  evaluateTarget(
    {
      command: "gym dataset validate",
      options,
      agent: oracle(ctx.clock),
      skipUnloadable: true,
      exitOf: validateExit,
    },
    ctx,
  );
