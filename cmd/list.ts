/** `list agents` and `list sandboxes`: the names that options take. */
import { z } from "zod";
import { PROVIDERS } from "../providers/mod.ts";
import { agents } from "../lib/agent/mod.ts";
import type { Context } from "../lib/context.ts";
import { EXIT } from "../lib/errors.ts";
import { type CommandModule } from "./mod.ts";
import { parseWith } from "./_options.ts";

const Options = z.strictObject({ json: z.boolean().default(false) });
type Options = z.infer<typeof Options>;

type Item = { name: string; kind: "agent" | "sandbox"; about: string; needs_solution?: boolean };

export const listAgents: CommandModule<Options> = listing(
  "list agents",
  "The agents that `run --agent` takes.",
  (ctx) =>
    agents(ctx.clock).map(({ name, about, needsSolution }) => ({
      name,
      kind: "agent",
      about,
      needs_solution: needsSolution,
    })),
);

export const listSandboxes: CommandModule<Options> = listing(
  "list sandboxes",
  "The sandboxes that --sandbox takes; `doctor` tries which of them work here.",
  () => [
    { name: "auto", kind: "sandbox", about: "the first that works of docker, podman and namespace" },
    ...PROVIDERS.map(({ name, about }): Item => ({ name, kind: "sandbox", about })),
  ],
);

function listing(name: string, description: string, items: (ctx: Context) => Item[]): CommandModule<Options> {
  return {
    parse: (argv) =>
      parseWith(
        argv,
        Options,
        (command) => command.name(name).description(description).option("--json", "one JSON object a line"),
      ),
    run(options, ctx) {
      const all = items(ctx);
      const width = Math.max(...all.map((item) => item.name.length));
      for (const item of all) {
        ctx.out(options.json ? JSON.stringify(item) : `${item.name.padEnd(width)}  ${item.about}`);
      }
      return Promise.resolve(EXIT.ok);
    },
  };
}
