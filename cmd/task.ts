/** `task schema`: the JSON Schema of task.toml, for editors and other readers. */
import { z } from "zod";
import type { Context } from "../lib/context.ts";
import { EXIT } from "../lib/errors.ts";
import { StrictTaskToml } from "../lib/task/schema.ts";
import { parseWith } from "./_options.ts";

const Options = z.strictObject({ json: z.boolean().default(false) });
export type Options = z.infer<typeof Options>;

export const parse = (argv: string[]): Options =>
  parseWith(argv, Options, (command) =>
    command.name("task schema")
      .description("Prints a JSON Schema (2020-12) of task.toml.")
      .option("--json", "on one line"));

export function run(options: Options, ctx: Context): Promise<number> {
  ctx.out(JSON.stringify(taskSchema(), null, options.json ? undefined : 2));
  return Promise.resolve(EXIT.ok);
}

/** Keys keep the defaults that zod leaves out where a value is read laxly. */
export function taskSchema(): Record<string, unknown> {
  return z.toJSONSchema(StrictTaskToml, {
    io: "input",
    unrepresentable: "any",
    override: ({ zodSchema, jsonSchema }) => {
      const meta = z.globalRegistry.get(zodSchema as never) as { default?: unknown } | undefined;
      if (meta !== undefined && "default" in meta) jsonSchema.default = meta.default as never;
    },
  }) as Record<string, unknown>;
}
