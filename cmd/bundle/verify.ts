/** `bundle verify`: whether a bundle arrived as it was written. */
import { z } from "zod";
import type { Context } from "../../lib/context.ts";
import { EXIT } from "../../lib/errors.ts";
import { machinePlatform } from "../../lib/runtime/platform.ts";
import { parseWith } from "../_options.ts";
import { bundleFolder, faultLine, verified } from "./_folder.ts";

const Options = z.strictObject({
  folder: z.string(),
  platform: z.string().default(machinePlatform),
  json: z.boolean().default(false),
  quiet: z.boolean().default(false),
  verbose: z.boolean().default(false),
});
export type Options = z.infer<typeof Options>;

export const parse = (argv: string[]): Options =>
  parseWith(argv, Options, (command) =>
    command.name("bundle verify")
      .description(
        "Checks every file of a bundle against its sum, its images, the digest of every task, and that every image\n" +
          "a task starts is there. Lists all that is wrong, each by its file. Exit 1 when something is.",
      )
      .argument("<folder>", "a folder that 'bundle export' wrote")
      .option("--platform <os/arch>", "what its images must be for (default: this machine)")
      .option("--json", "one JSON object a line")
      .option("-q, --quiet", "no notes, only results")
      .addOption(command.createOption("-v, --verbose", "starts no programs").hideHelp()));

export async function run(options: Options, ctx: Context): Promise<number> {
  const folder = bundleFolder(options.folder, ctx);
  const { bundle, faults, files } = await verified(folder, ctx, options.platform);
  const tasks = Object.keys(bundle?.tasks ?? {}).length;
  const images = bundle?.images.length ?? 0;
  if (options.json) {
    for (const fault of faults) ctx.out(JSON.stringify(fault));
    ctx.out(
      JSON.stringify({ path: options.folder, ok: faults.length === 0, faults: faults.length, tasks, images, files }),
    );
  } else {
    for (const fault of faults) ctx.out(faultLine(fault));
    ctx.out(
      faults.length > 0
        ? `${options.folder}: ${faults.length} fault${faults.length === 1 ? "" : "s"}`
        : `${options.folder}: good (tasks: ${tasks}, images: ${images}, files: ${files})`,
    );
  }
  return faults.length === 0 ? EXIT.ok : EXIT.no;
}
