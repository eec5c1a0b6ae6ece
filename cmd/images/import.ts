/** `images import`: images that no registry has, from files, folders and engines of this machine. */
import { z } from "zod";
import type { Context } from "../../lib/context.ts";
import { EXIT } from "../../lib/errors.ts";
import { parseReference } from "../../lib/images/reference.ts";
import { bytesText } from "../../lib/bytes.ts";
import { importImages } from "../../lib/store/import.ts";
import { parseWith } from "../_options.ts";
import {
  hex,
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

const Options = z.strictObject({
  source: z.string(),
  name: z.array(z.string()).default([]),
  ...PlatformOption,
  ...StoreOptions,
});
export type Options = z.infer<typeof Options>;

const collect = (value: string, before: string[] | undefined): string[] => [...before ?? [], value];

export const parse = (argv: string[]): Options =>
  parseWith(argv, Options, (command) =>
    withStoreOptions(withPlatform(
      command.name("images import")
        .description(
          "Takes images into our own store: an archive of 'docker save' or 'podman save', an OCI layout (folder or " +
            "archive), a root file system (folder or archive, with --name), or docker:NAME and podman:NAME straight " +
            "from an engine. Configurations stay byte for byte, so images keep their ids.",
        )
        .argument("<source>", "a file, a folder, docker:NAME or podman:NAME")
        .option("--name <name>", "instead of the names it has; may be repeated", collect),
    )));

export async function run(options: Options, ctx: Context): Promise<number> {
  const store = storeOf(options, ctx);
  for (const name of options.name) parseReference(name); // a name that no image can have is refused before any work
  const request = {
    source: options.source,
    cwd: ctx.cwd,
    names: options.name,
    platform: platformOf(options.platform, ctx.env),
  };
  const images = await importImages(request, store, ctx, ctx.signal);
  for (const image of images) {
    const names = image.names.length === 0 ? shownName(image) : image.names.join(" ");
    ctx.out(
      options.json
        ? JSON.stringify({ ...imageJson(image), store: store.folder })
        : `${hex(image.config.digest).slice(0, 12)}  ${names}  ${bytesText(sizeOf(image))}`,
    );
  }
  const nameless = images.filter(({ names }) => names.length === 0);
  if (nameless.length > 0 && !options.quiet) {
    ctx.note("an image without a name is found by its digest; give it one with --name");
  }
  return EXIT.ok;
}
