/** `bundle push`: the images of a bundle into a registry inside the site, and what its references become there. */
import { z } from "zod";
import { pushedName, registryPlace } from "../../lib/bundle/push.ts";
import { readBundle } from "../../lib/bundle/schema.ts";
import type { Context } from "../../lib/context.ts";
import { EXIT, HarborError } from "../../lib/errors.ts";
import { pushImage } from "../../lib/images/push.ts";
import { openRegistry } from "../../lib/registry/mod.ts";
import { screen } from "../../lib/report/screen.ts";
import { isUtf8Locale } from "../../lib/runtime/terminal.ts";
import { readEnvYaml } from "../_env_yaml.ts";
import { parseWith } from "../_options.ts";
import { parseOverrides } from "../_overrides.ts";
import { isOffline } from "../_run_options.ts";
import { bundleFolder, bundleStore } from "./_folder.ts";

const Options = z.strictObject({
  folder: z.string(),
  overrides: z.array(z.string()).default([]),
  registry: z.string(),
  json: z.boolean().default(false),
  quiet: z.boolean().default(false),
  verbose: z.boolean().default(false),
});
export type Options = z.infer<typeof Options>;

export const parse = (argv: string[]): Options =>
  parseWith(argv, Options, (command) =>
    command.name("bundle push")
      .description(
        "Sends the images of a bundle to a registry, for sandboxes that start from one, and prints for each\n" +
          "reference of a task what it is called there. Blobs that the registry has are not sent again.",
      )
      .argument("<folder>", "a folder that 'bundle export' wrote")
      .argument("[overrides...]", "registries.<host>.insecure=true and the like")
      .requiredOption("--registry <host/path>", "where to, with or without a path: registry.site:5000/gym")
      .option("--json", "one JSON object a line")
      .option("-q, --quiet", "only results, warnings and errors")
      .option("-v, --verbose", "also every request"));

export async function run(options: Options, ctx: Context): Promise<number> {
  if (isOffline({ offline: false }, ctx.env)) {
    throw new HarborError("usage", `GYM_HARBOR_OFFLINE is set, and bundle push asks ${options.registry}`, {
      hint: "unset it for this command: env -u GYM_HARBOR_OFFLINE gym-harbor bundle push …",
    });
  }
  const place = registryPlace(options.registry);
  const { registries } = parseOverrides(options.overrides, readEnvYaml(ctx.cwd));
  const folder = bundleFolder(options.folder, ctx);
  const bundle = readBundle(folder);
  const store = bundleStore(folder, ctx);
  const view = screen(ctx, { ...options, utf8: isUtf8Locale(ctx.env) });
  const { emit } = view;
  try {
    const trace = options.verbose ? { trace: ctx.note } : {};
    const effects = { runner: ctx.runner, clock: ctx.clock, env: ctx.env, emit, ...trace };
    const registry = openRegistry({ ...effects, settings: registries });
    for (const image of bundle.images) {
      const stored = await store.find(image.manifest_digest, bundle.platform);
      if (stored === undefined) {
        throw new HarborError("bundle.invalid", `${image.refs[0]} is not whole in ${options.folder}`, {
          hint: `gym-harbor bundle verify ${options.folder} names the file that is missing`,
        });
      }
      const pushed = await pushImage(stored, pushedName(image, place), { registry, store }, ctx.signal, emit);
      for (const ref of image.refs) ctx.out(options.json ? JSON.stringify({ ref, pushed }) : `${ref}\t${pushed}`);
    }
    return EXIT.ok;
  } finally {
    view.close();
  }
}
