/** Builds the real Context, calls the command, turns the outcome into an exit code; nothing else. */
import process from "node:process";
import { main } from "./cmd/mod.ts";
import { EXIT } from "./lib/errors.ts";
import { processContext } from "./lib/runtime/process_context.ts";

const argv = process.argv.slice(2);
const { ctx, flush, interruptedExit } = processContext({ verbose: argv.includes("-v") || argv.includes("--verbose") });
const exit = await main(argv, ctx);
const delivered = await flush();
process.exit(interruptedExit() ?? (delivered || exit !== EXIT.ok ? exit : EXIT.machine));
