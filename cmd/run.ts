/** `run`: lets an agent work on tasks and grades what it leaves. */
import { z } from "zod";
import { agentNamed } from "../lib/agent/mod.ts";
import type { Context } from "../lib/context.ts";
import { runExit } from "../lib/report/exit.ts";
import { evaluateTarget } from "./_evaluate.ts";
import { parseWith } from "./_options.ts";
import { RunOptions, withRunOptions } from "./_run_options.ts";

const Options = RunOptions.extend({ agent: z.string({ error: "is required: harbor_oracle or nop" }) });
export type Options = z.infer<typeof Options>;

export const parse = (argv: string[]): Options =>
  parseWith(argv, Options, (command) =>
    withRunOptions(
      command.name("run").description(
        "Runs an agent on each task in a fresh sandbox, grades what it leaves and prints a table. " +
          "Exit 0: the work was done, whatever the rewards.",
      ).option("--agent <name>", "harbor_oracle (the reference solution) or nop (nothing)"),
    ));

export function run({ agent, ...options }: Options, ctx: Context): Promise<number> {
  return evaluateTarget(
    {
      command: "gym eval run",
      options,
      agent: agentNamed(agent, ctx.clock),
      skipUnloadable: options.skipUnloadable,
      exitOf: runExit,
    },
    ctx,
  );
}
