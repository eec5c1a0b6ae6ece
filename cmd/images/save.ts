/** `images save`: images as archives to carry, with their names. */
import { resolve } from "node:path";
import { z } from "zod";
import type { Context } from "../../lib/context.ts";
import { EXIT } from "../../lib/errors.ts";
import { bytesText } from "../../lib/bytes.ts";
import { saveImages } from "../../lib/store/carried.ts";
import { parseWith } from "../_options.ts";
import { referencesIn } from "./_references.ts";
import {
  imageIn,
  platformOf,
  PlatformOption,
  sizeOf,
  storeOf,
  StoreOptions,
  withPlatform,
  withStoreOptions,
} from "./_store.ts";

const Options = z.strictObject({
  references: z.array(z.string()).min(1),
  out: z.string({ error: "name the folder to write: --out DIR" }),
  ...PlatformOption,
  ...StoreOptions,
});
export type Options = z.infer<typeof Options>;

export const parse = (argv: string[]): Options =>
  parseWith(argv, Options, (command) =>
    withStoreOptions(withPlatform(
      command.name("images save")
        .description(
          "Writes images of our own store as one archive each, which docker and podman load too, and map.json with " +
            "all their names. Archives that are there already stay.",
        )
        .argument("<references...>", "images, or files that list them (images.json of a run)")
        .option("--out <dir>", "folder to write; it is made"),
    )));

export async function run(options: Options, ctx: Context): Promise<number> {
  const store = storeOf(options, ctx);
  const platform = platformOf(options.platform, ctx.env);
  const images = [];
  // All are looked up before the first is written.
  for (const reference of referencesIn(options.references, ctx.cwd)) {
    images.push(await imageIn(store, reference, platform));
  }
  if (!options.quiet) {
    ctx.note(`${images.length} images, ${bytesText(images.reduce((sum, one) => sum + sizeOf(one), 0))}`);
  }
  for await (const carried of saveImages(images, store, resolve(ctx.cwd, options.out), ctx.signal)) {
    ctx.out(options.json ? JSON.stringify(carried) : `${carried.file}  ${bytesText(carried.size_bytes)}`);
  }
  return EXIT.ok;
}
