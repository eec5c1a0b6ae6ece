/** Builds the real Context, calls the command, turns the outcome into an exit code; nothing else. */
import process from "node:process";
import { main } from "./cmd/mod.ts";
import { processContext } from "./lib/runtime/process_context.ts";

const verbose = process.argv.includes("-v") || process.argv.includes("--verbose");
const { ctx, flush, interruptedExit } = processContext({
  trace: verbose ? (line) => void process.stderr.write(`+ ${line}\n`) : undefined,
});
const exit = await main(process.argv.slice(2), ctx);
await flush();
process.exit(interruptedExit() ?? exit);
