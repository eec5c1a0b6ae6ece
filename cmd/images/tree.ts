/** `images tree`: the layers of an image, what made each, and which other images share it. */
import { z } from "zod";
import type { Context } from "../../lib/context.ts";
import { EXIT } from "../../lib/errors.ts";
import type { ImageFile } from "../../lib/images/config.ts";
import { bytesText } from "../../lib/bytes.ts";
import { columns } from "../../lib/report/columns.ts";
import { visible } from "../../lib/runtime/terminal.ts";
import { parseWith } from "../_options.ts";
import {
  hex,
  imageIn,
  imageJson,
  platformOf,
  PlatformOption,
  shownName,
  sizeOf,
  storeOf,
  StoreOptions,
  withPlatform,
  withStoreOptions,
} from "./_store.ts";

const Options = z.strictObject({ reference: z.string(), ...PlatformOption, ...StoreOptions });
export type Options = z.infer<typeof Options>;

export const parse = (argv: string[]): Options =>
  parseWith(argv, Options, (command) =>
    withStoreOptions(withPlatform(
      command.name("images tree")
        .description("Shows the layers of an image from the lowest up: size, what made it, and what shares it.")
        .argument("<reference>", "an image of our own store, by any of its names or digests"),
    )));

const History = z.array(z.looseObject({ created_by: z.string().optional(), empty_layer: z.boolean().optional() }));

export async function run(options: Options, ctx: Context): Promise<number> {
  const store = storeOf(options, ctx);
  const image = await imageIn(store, options.reference, platformOf(options.platform, ctx.env));
  const others = (await store.list()).filter(({ manifest }) => manifest.digest !== image.manifest.digest);
  const made = madeBy(image.file);
  const layers = image.layers.map((layer, index) => ({
    digest: hex(layer.digest),
    diff_id: hex(layer.diffId),
    size_bytes: layer.size,
    created_by: made[index] ?? null,
    shared_with: others.filter((other) => other.layers.some(({ digest }) => digest === layer.digest)).map(shownName),
  }));
  if (options.json) {
    ctx.out(JSON.stringify({ ...imageJson(image), layers }));
    return EXIT.ok;
  }
  ctx.out(`${shownName(image)}  ${image.platform}  ${bytesText(sizeOf(image))}`);
  for (const name of image.names) ctx.out(`  also ${name}`);
  const rows = layers.map(({ digest, size_bytes, created_by, shared_with }) => [
    `  ${digest.slice(0, 12)}`,
    bytesText(size_bytes),
    shared_with.length === 0 ? "-" : `shared by ${shared_with.length}: ${shared_with.slice(0, 2).join(", ")}`,
    visible(shortened(created_by ?? "")),
  ]);
  for (const line of columns(rows)) ctx.out(line);
  return EXIT.ok;
}

/** The command behind each layer, lowest first; entries of history that made no layer are passed over. Pure. */
export function madeBy(file: ImageFile): (string | undefined)[] {
  const history = History.safeParse((file as { history?: unknown }).history);
  if (!history.success) return [];
  return history.data.filter(({ empty_layer }) => !empty_layer).map(({ created_by }) => created_by);
}

const SHOWN = 60;

const shortened = (text: string): string => {
  const line = text.replace(/^\/bin\/sh -c (#\(nop\) )?/, "").replace(/\s+/g, " ").trim();
  return line.length > SHOWN ? `${line.slice(0, SHOWN - 1)}…` : line;
};
