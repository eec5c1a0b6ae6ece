/**
 * Hidden: unpacks a layer where the ids of a plain user's range are at hand. Our own process starts it inside a user
 * namespace, with the request on its standard input (lib/unpack/worker.ts).
 */
import type { Context } from "../lib/context.ts";
import { EXIT, HarborError } from "../lib/errors.ts";
import { stdinText } from "../lib/runtime/stdin.ts";
import { answerTo } from "../lib/unpack/worker.ts";

export function parse(argv: string[]): Record<never, never> {
  if (argv.length > 0) {
    throw new HarborError("usage", "unpack-layer takes a request on its standard input, not by hand");
  }
  return {};
}

export async function run(_options: Record<never, never>, ctx: Context): Promise<number> {
  ctx.out(await answerTo(await stdinText(), ctx.runner, ctx.signal));
  return EXIT.ok;
}
