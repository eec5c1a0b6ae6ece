/** What the commands on a finished bundle share: its folder, its store, and what is wrong with it. */
import { join, resolve } from "node:path";
import { PLACES } from "../../lib/bundle/schema.ts";
import { type BundleFault, verifyBundle } from "../../lib/bundle/verify.ts";
import type { Context } from "../../lib/context.ts";
import { HarborError } from "../../lib/errors.ts";
import { isFolder } from "../../lib/files/tree.ts";
import { openStore } from "../../lib/store/layout.ts";

/** Absolute folder of `named`. Throws "usage" when it is none. */
export function bundleFolder(named: string, ctx: Context): string {
  const folder = resolve(ctx.cwd, named);
  if (isFolder(folder)) return folder;
  throw new HarborError("usage", `${named} is not a directory`, { hint: "name the folder that 'bundle export' wrote" });
}

/** The images of a bundle, which nobody changes. */
export const bundleStore = (folder: string, { clock }: Pick<Context, "clock">) =>
  openStore(join(folder, PLACES.images), { clock, readOnly: true });

export const verified = (folder: string, ctx: Context, platform: string | undefined) =>
  verifyBundle(folder, { signal: ctx.signal, passed: () => {}, store: bundleStore(folder, ctx), platform });

/** One line a fault, with what to do about it. */
export const faultLine = ({ file, what, fix }: BundleFault): string => `${file}: ${what} (${fix})`;
