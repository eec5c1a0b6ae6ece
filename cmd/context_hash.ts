/**
 * Hidden: the hash of one build context, in a process of its own beside a `digest` that reads the same files for its
 * other hashes (lib/digest/large.ts). It only reads, and ends by itself.
 */
import type { Context } from "../lib/context.ts";
import { contextHash } from "../lib/digest/context.ts";
import { EXIT, HarborError } from "../lib/errors.ts";

export interface Options {
  folder: string;
}

/** `context-hash FOLDER`; no parser library, since somebody waits for it. */
export function parse(argv: string[]): Options {
  const [folder] = argv;
  if (folder === undefined) throw new HarborError("usage", "context-hash FOLDER: started by digest, not by hand");
  return { folder };
}

export function run({ folder }: Options, ctx: Context): Promise<number> {
  ctx.out(contextHash(folder));
  return Promise.resolve(EXIT.ok);
}
