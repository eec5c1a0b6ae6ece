/** `bundle import`: the images of a bundle onto this machine. */
import { z } from "zod";
import { providerName } from "../../providers/mod.ts";
import { importImages, intoEngine, intoStore, type TakeImage } from "../../lib/bundle/import.ts";
import { readBundle } from "../../lib/bundle/schema.ts";
import type { Context } from "../../lib/context.ts";
import { EXIT, HarborError } from "../../lib/errors.ts";
import type { Emit } from "../../lib/events.ts";
import { machinePlatform } from "../../lib/runtime/platform.ts";
import { screen } from "../../lib/report/screen.ts";
import { programName } from "../../lib/runtime/self.ts";
import { isUtf8Locale } from "../../lib/runtime/terminal.ts";
import { storeFolder } from "../../lib/store/folder.ts";
import { openStore } from "../../lib/store/layout.ts";
import { parseWith } from "../_options.ts";
import { RunSandboxes } from "../_run_sandboxes.ts";
import { bundleFolder, bundleStore, faultLine, verified } from "./_folder.ts";

const Options = z.strictObject({
  folder: z.string(),
  sandbox: z.string().default("auto"),
  imageStore: z.string().optional(),
  platform: z.string().default(machinePlatform),
  verifyOnly: z.boolean().default(false),
  json: z.boolean().default(false),
  quiet: z.boolean().default(false),
  verbose: z.boolean().default(false),
});
export type Options = z.infer<typeof Options>;

export const parse = (argv: string[]): Options =>
  parseWith(argv, Options, (command) =>
    command.name("bundle import")
      .description(
        "Checks a bundle and takes its images over: into docker or podman, or into a store of our own for\n" +
          "sandboxes without an engine. Those also start straight from the bundle, so they need no import while the\n" +
          "bundle can be reached. What is here already stays as it is; nothing is written into the bundle.",
      )
      .argument("<folder>", "a folder that 'bundle export' wrote")
      .option("--sandbox <name>", "docker, podman, namespace, or auto: the first that works here")
      .option("--image-store <dir>", "our own images (default: gym-harbor/images in the user's cache)")
      .option("--platform <os/arch>", "what its images must be for (default: this machine)")
      .option("--verify-only", "check it, take nothing over")
      .option("--json", "one JSON object a line for each image")
      .option("-q, --quiet", "only results, warnings and errors")
      .option("-v, --verbose", "also every program that is started"));

export async function run(options: Options, ctx: Context): Promise<number> {
  if (options.sandbox !== "auto") providerName(options.sandbox);
  const folder = bundleFolder(options.folder, ctx);
  const view = screen(ctx, { ...options, utf8: isUtf8Locale(ctx.env) });
  try {
    const { faults } = await verified(folder, ctx, options.platform);
    if (faults.length > 0) {
      for (const fault of faults) ctx.out(options.json ? JSON.stringify(fault) : faultLine(fault));
      throw new HarborError(
        "bundle.invalid",
        `${options.folder} is not taken over: ${faults.length} fault${faults.length === 1 ? "" : "s"}`,
        { hint: "mend what is listed, then import again" },
      );
    }
    const bundle = readBundle(folder);
    if (options.verifyOnly) {
      ctx.out(options.json ? JSON.stringify({ path: options.folder, ok: true }) : `${options.folder}: good`);
      return EXIT.ok;
    }
    await using sandboxes = new RunSandboxes(ctx, { name: options.sandbox, options: {}, emit: view.emit });
    const take = await taker(folder, sandboxes, options, ctx, view.emit);
    if (take === undefined) return EXIT.ok;
    let done = 0;
    for await (const { image, outcome } of importImages(bundle, bundleStore(folder, ctx), take, ctx.signal)) {
      const { alias, refs, config_digest } = image;
      const said = outcome === "there" ? "is here already" : "taken over";
      view.emit({ kind: "note", text: `${++done}/${bundle.images.length} ${refs[0]}: ${said}` });
      ctx.out(options.json ? JSON.stringify({ alias, refs, config_digest, outcome }) : `${alias}\t${refs.join(" ")}`);
    }
    view.emit({ kind: "note", text: `next: ${programName} validate ${options.folder} --offline` });
    return EXIT.ok;
  } finally {
    view.close();
  }
}

/** How images are taken over here; undefined where there is nothing to take. */
async function taker(
  folder: string,
  sandboxes: RunSandboxes,
  { sandbox, imageStore, folder: shown }: Options,
  ctx: Context,
  emit: Emit,
): Promise<TakeImage | undefined> {
  const from = bundleStore(folder, ctx);
  const own = () => intoStore(openStore(storeFolder(ctx.env, imageStore), { clock: ctx.clock }), from);
  if (sandbox === "namespace" || (sandbox === "auto" && imageStore !== undefined)) return own();
  const provider = await sandboxes.provider();
  if (provider.takeIn !== undefined) return intoEngine(provider, from);
  if (provider.name !== "host") return own();
  emit({ kind: "note", text: `--sandbox host starts no images: ${shown} is used as it is` });
  return undefined;
}
