/** `digest`: the identity of tasks and datasets. Starts nothing, writes nothing. */
import { z } from "zod";
import type { Context } from "../lib/context.ts";
import { type DatasetDigestLine, digestTarget, type TaskDigestLine } from "../lib/dataset/digest.ts";
import type { ContextHasher } from "../lib/digest/large.ts";
import { EXIT } from "../lib/errors.ts";
import { selfArgv } from "../lib/runtime/self.ts";
import { resolveTarget } from "../lib/target/resolve.ts";
import { parseWith } from "./_options.ts";

const Options = z.strictObject({
  paths: z.array(z.string()).min(1),
  json: z.boolean().default(false),
  quiet: z.boolean().default(false),
  verbose: z.boolean().default(false),
});
export type Options = z.infer<typeof Options>;

export const parse = (argv: string[]): Options =>
  parseWith(argv, Options, (command) =>
    command.name("digest")
      .description(
        "Prints the digest of each task, and of a dataset as a whole. With --json also its effective digest (under\n" +
          "the settings of its dataset), Harbor's package hash and directory checksum, and the hash of its build context.",
      )
      .argument("<paths...>", "task folders, folders of task folders")
      .option("--json", "one JSON object a line")
      .option("-q, --quiet", "no notes, only results")
      .option("-v, --verbose", "print the programs that are started"));

export async function run(options: Options, ctx: Context): Promise<number> {
  // Every path is looked at before the first line, so that a wrong command line prints nothing else.
  const targets = options.paths.map((path) => resolveTarget(path, ctx.cwd));
  let exit: number = EXIT.ok;
  for (const target of targets) {
    for await (const line of digestTarget(target, { signal: ctx.signal, beside: besideUs(ctx) })) {
      ctx.out(options.json ? JSON.stringify(line) : textLine(line));
      if (line.problems === undefined) continue;
      exit = EXIT.no;
      if (!options.quiet) sayProblems(line, ctx);
    }
  }
  return exit;
}

function textLine(line: TaskDigestLine | DatasetDigestLine): string {
  const digest = "tasks" in line ? line.dataset_digest : line.task_digest;
  const path = "tasks" in line ? `${line.path}  (dataset of ${line.tasks})` : line.path;
  return `${digest ?? "-".repeat(64)}  ${path}`;
}

function sayProblems({ path, problems }: TaskDigestLine | DatasetDigestLine, ctx: Context): void {
  const said = new Map<string, { digests: string[]; hint?: string }>();
  for (const { digest, message, hint } of problems ?? []) {
    const one = said.get(message);
    if (one === undefined) said.set(message, { digests: [digest], hint });
    else one.digests.push(digest);
  }
  for (const [message, { digests, hint }] of said) {
    ctx.note(`error[task.invalid]: ${path} has no ${digests.join(", ")}: ${message}`);
    if (hint !== undefined) ctx.note(`hint: ${hint}`);
  }
}

/** A second process of this program for the context of a large task (lib/digest/large.ts). */
const besideUs = (ctx: Context): ContextHasher => async (folder, signal) => {
  const result = await ctx.runner.run(selfArgv(["context-hash", folder]), { signal });
  const hash = result.stdout.trim();
  return result.exitCode === 0 && /^[0-9a-f]{32}$/.test(hash) ? hash : undefined;
};
