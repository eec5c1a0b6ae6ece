/** A program that waits to be interrupted: tests/lib/runtime/process_context_test.ts sends it signals. */
import process from "node:process";
import { writeSync } from "node:fs";
import { processContext } from "../../lib/runtime/process_context.ts";

const { ctx, flush, interruptedExit } = processContext();
ctx.onSecondSignal(() => {
  throw new Error("one that fails does not stop the next");
});
ctx.onSecondSignal(() => void writeSync(1, "undone\n"));
ctx.onSecondSignal(() => void writeSync(1, "forgotten\n"))();
ctx.out("ready");
if (process.argv.includes("throw")) setTimeout(() => JSON.parse("no JSON"), 1);
if (process.argv.includes("reject")) Promise.reject(new Error("nobody waits for this"));
const lingers = process.argv.includes("linger");
await ctx.clock.sleep(60_000, ctx.signal).catch((reason) => ctx.out(`${reason.code}: ${reason.message}`));
ctx.note("\x1b]0;title\x07");
if (lingers) await ctx.clock.sleep(60_000);
await flush();
process.exit(interruptedExit() ?? 0);
