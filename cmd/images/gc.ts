/** `images gc`: room among our own images and their unpacked layers. */
import { z } from "zod";
import type { Context } from "../../lib/context.ts";
import { EXIT } from "../../lib/errors.ts";
import { bytesFrom, bytesText } from "../../lib/bytes.ts";
import { collectGarbage } from "../../lib/store/gc.ts";
import type { StoredImage } from "../../lib/store/store.ts";
import { unpackFolder } from "../../lib/unpack/folder.ts";
import { collectTrees } from "../../lib/unpack/gc.ts";
import { parseWith } from "../_options.ts";
import { durationMs } from "../sandbox.ts";
import { hex, shownName, storeOf, StoreOptions, withStoreOptions } from "./_store.ts";

const Options = z.strictObject({
  olderThan: z.string().transform((text, check) => {
    const ms = durationMs(text);
    if (ms === undefined) check.addIssue(`'${text}' is no time; write 12h, 30d`);
    return ms ?? 0;
  }).optional(),
  maxSize: z.string().transform((text, check) => {
    const bytes = bytesFrom(text);
    if (bytes === undefined) check.addIssue(`'${text}' is no size; write 500M, 50G or 1TiB`);
    return bytes ?? 0;
  }).optional(),
  dryRun: z.boolean().default(false),
  unpackDir: z.string().optional(),
  ...StoreOptions,
});
export type Options = z.infer<typeof Options>;

export const parse = (argv: string[]): Options =>
  parseWith(argv, Options, (command) =>
    withStoreOptions(
      command.name("images gc")
        .description(
          "Removes blobs that no image names, downloads that nobody goes on with and unpacked layers of images that " +
            "are gone; with --older-than also images and layers that were not used for that time, with --max-size the " +
            "longest unused ones, unpacked layers first. What a process uses, and what was used or taken in within " +
            "the last hour, stays.",
        )
        .option("--older-than <time>", "unused for at least this long (12h, 30d)")
        .option("--max-size <size>", "until images and unpacked layers take no more than this (50G)")
        .option("--dry-run", "say what would go, remove nothing")
        .option("--unpack-dir <dir>", "where layers were unpacked, when a run was told so"),
    ));

export async function run(options: Options, ctx: Context): Promise<number> {
  const { olderThan: olderThanMs, maxSize, dryRun } = options;
  const store = storeOf(options, ctx);
  const unpackDir = unpackFolder(ctx.env, options.unpackDir, store);
  const facts = { olderThanMs, dryRun };
  // Trees can be made again from blobs: they go first, and images only for what is still too much.
  const blobBytes = maxSize === undefined ? 0 : (await collectGarbage(store, { dryRun: true }, ctx.clock)).keptBytes;
  const wanted = new Set((await store.list()).flatMap(({ layers }) => layers.map(({ diffId }) => diffId)));
  const trees = await collectTrees(unpackDir, {
    ...facts,
    ...(!store.readOnly && { wanted }),
    ...(maxSize !== undefined && { maxBytes: Math.max(0, maxSize - blobBytes) }),
  }, ctx.clock);
  const maxBytes = maxSize === undefined ? undefined : Math.max(0, maxSize - trees.keptBytes);
  const images = store.readOnly
    ? { images: [], blobs: [], freedBytes: 0, failed: [] }
    : await collectGarbage(store, { ...facts, ...(maxBytes !== undefined && { maxBytes }) }, ctx.clock);
  const verb = dryRun ? "would remove" : "removed";
  for (const { names, manifestDigest, reason } of images.images) {
    const name = shownName({ names, manifest: { digest: manifestDigest } as StoredImage["manifest"] });
    ctx.out(
      options.json
        ? JSON.stringify({ image: names, manifest_digest: hex(manifestDigest), reason })
        : `${verb} ${name} (${reason})`,
    );
  }
  for (const { path, bytes } of trees.removed) {
    ctx.out(options.json ? JSON.stringify({ tree: path, bytes }) : `${verb} ${path} (${bytesText(bytes)} unpacked)`);
  }
  const failed = [...trees.failed, ...images.failed];
  for (const { path, reason } of failed) ctx.note(`could not remove ${path}: ${reason}`);
  if (!options.quiet) {
    ctx.note(`${verb} ${bytesText(images.freedBytes)} of blobs and ${bytesText(trees.freedBytes)} of unpacked layers`);
    if (store.readOnly) ctx.note(`${store.folder} cannot be written: nothing of it was removed`);
  }
  return failed.length === 0 ? EXIT.ok : EXIT.no;
}
