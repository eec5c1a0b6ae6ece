/** `images pull`: images from registries into our own store, whole and checked, once for all who share it. */
import { z } from "zod";
import type { Context } from "../../lib/context.ts";
import { EXIT, exitCodeOf, HarborError } from "../../lib/errors.ts";
import { pullImage } from "../../lib/images/pull.ts";
import { parseReference } from "../../lib/images/reference.ts";
import { screen } from "../../lib/report/screen.ts";
import { pool } from "../../lib/runtime/pool.ts";
import { isUtf8Locale } from "../../lib/runtime/terminal.ts";
import type { ImageStore, StoredImage } from "../../lib/store/store.ts";
import { unpackFolder } from "../../lib/unpack/folder.ts";
import { layerTrees } from "../../lib/unpack/trees.ts";
import { ownerMapHere } from "../../providers/namespace.ts";
import { readEnvYaml } from "../_env_yaml.ts";
import { imageSetup } from "../_images.ts";
import { parseWith } from "../_options.ts";
import { parseOverrides } from "../_overrides.ts";
import { referencesIn, split } from "./_references.ts";
import {
  hex,
  imageJson,
  platformOf,
  PlatformOption,
  shownName,
  StoreOptions,
  withPlatform,
  withStoreOptions,
} from "./_store.ts";

const Options = z.strictObject({
  references: z.array(z.string()).min(1),
  concurrency: z.string().regex(/^[1-9]\d?$/, "must be a whole number from 1 to 99").transform(Number).default(2),
  offline: z.boolean().default(false),
  unpack: z.boolean().default(false),
  unpackDir: z.string().optional(),
  ...PlatformOption,
  ...StoreOptions,
});
export type Options = z.infer<typeof Options>;

export const parse = (argv: string[]): Options =>
  parseWith(argv, Options, (command) =>
    withStoreOptions(withPlatform(
      command.name("images pull")
        .description(
          "Fetches images into our own store, for sandboxes without an engine and for bundles. What is there is not " +
            "fetched again; what broke off is gone on with. Logins are those of docker and podman.",
        )
        .argument("<references...>", "images, files that list them (images.json of a run), and overrides")
        .option("--concurrency <n>", "images at a time (default: 2)")
        .option("--unpack", "also unpack their layers, so that the first sandbox starts at once")
        .option("--unpack-dir <dir>", "where, on a disk of this machine")
        .option("--offline", "ask no network: say which are missing"),
    )));

export async function run(options: Options, ctx: Context): Promise<number> {
  const { references, overrides } = split(options.references);
  const view = screen(ctx, { ...options, utf8: isUtf8Locale(ctx.env) });
  const failed: { reference: string; error: HarborError }[] = [];
  try {
    const setup = imageSetup(options, parseOverrides(overrides, readEnvYaml(ctx.cwd)), ctx, view.emit);
    const { registry, store } = setup;
    const platform = platformOf(options.platform ?? setup.platform, ctx.env);
    const unpack = options.unpack ? await unpacker(options, store, ctx) : undefined;
    await pool(referencesIn(references, ctx.cwd), options.concurrency, async (reference) => {
      try {
        const here = setup.offline || isLocal(reference) ? await store.find(reference, platform) : undefined;
        if (here === undefined && setup.offline) throw missing(reference, store);
        const deps = { registry, store, platform };
        const image = here ?? await pullImage(notLocal(reference), deps, ctx.signal, view.emit);
        await unpack?.(image);
        const line = { reference, ...imageJson(image), store: store.folder };
        ctx.out(options.json ? JSON.stringify(line) : `${hex(image.config.digest).slice(0, 12)}  ${shownName(image)}`);
      } catch (error) {
        ctx.signal.throwIfAborted();
        if (!(error instanceof HarborError)) throw error;
        failed.push({ reference, error });
        if (options.json) {
          ctx.out(JSON.stringify({ reference, error: { code: error.code, message: error.message, hint: error.hint } }));
        } else {
          ctx.note(`error[${error.code}]: ${error.message}`);
          if (error.hint !== undefined) ctx.note(`hint: ${error.hint}`);
        }
      }
    }, ctx.signal);
    ctx.signal.throwIfAborted();
  } finally {
    view.close();
  }
  if (failed.length === 0) return EXIT.ok;
  return failed.every(({ error }) => exitCodeOf(error.code) === EXIT.usage) ? EXIT.usage : EXIT.no;
}

function missing(reference: string, { folder }: ImageStore): HarborError {
  parseReference(reference);
  return new HarborError("image.missing", `Offline: ${reference} is not in the image store ${folder}`, {
    hint:
      "carry it in: gym-harbor bundle export or images save where there is a network, bundle import or images load here",
  });
}

/** As the sandbox without an engine does it for this user. */
async function unpacker({ unpackDir }: Options, store: ImageStore, { env, runner, clock, signal }: Context) {
  const owners = await ownerMapHere(runner);
  const deps = { unpackDir: unpackFolder(env, unpackDir, store), runner, clock };
  return (image: StoredImage) => layerTrees(image, store, owners, deps, signal);
}

const isLocal = (reference: string): boolean => /^(localhost\/)?hb__[0-9a-f]+/.test(reference);

/** A local build has no registry. */
function notLocal(reference: string): string {
  if (!isLocal(reference)) return reference;
  throw new HarborError("image.failed", `${reference} was built on a machine and is in no registry`, {
    hint: `where it was built: gym-harbor images import docker:${reference} (or podman:), or images save and load`,
  });
}
