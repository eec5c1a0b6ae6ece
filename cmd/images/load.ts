/** `images load`: what `images save` wrote, into our own store under all its names. */
import { resolve } from "node:path";
import { z } from "zod";
import type { Context } from "../../lib/context.ts";
import { EXIT } from "../../lib/errors.ts";
import { loadImages } from "../../lib/store/carried.ts";
import { parseWith } from "../_options.ts";
import { hex, imageJson, storeOf, StoreOptions, withStoreOptions } from "./_store.ts";

const Options = z.strictObject({ folder: z.string(), ...StoreOptions });
export type Options = z.infer<typeof Options>;

export const parse = (argv: string[]): Options =>
  parseWith(argv, Options, (command) =>
    withStoreOptions(
      command.name("images load")
        .description("Takes the images of a folder into our own store. What is there already stays as it is.")
        .argument("<folder>", "a folder that 'images save' wrote"),
    ));

export async function run(options: Options, ctx: Context): Promise<number> {
  const store = storeOf(options, ctx);
  for await (const image of loadImages(resolve(ctx.cwd, options.folder), store, ctx.signal)) {
    const line = `${hex(image.config.digest).slice(0, 12)}  ${image.names.join(" ")}`;
    ctx.out(options.json ? JSON.stringify(imageJson(image)) : line);
  }
  return EXIT.ok;
}
