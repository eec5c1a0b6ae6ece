/** `doctor`: which sandboxes work here, tried for real, and what mends the others. */
import { z } from "zod";
import type { Context } from "../lib/context.ts";
import { EXIT } from "../lib/errors.ts";
import { versionFacts } from "../lib/runtime/version.ts";
import { machineFacts, machineFindings } from "../lib/sandbox/machine.ts";
import type { Diagnosis, Missing } from "../lib/sandbox/provider.ts";
import { parseWith } from "./_options.ts";
import { askAll, type Lend, withProviders } from "./_sandboxes.ts";

const Options = z.strictObject({ json: z.boolean().default(false), verbose: z.boolean().optional() });
export type Options = z.infer<typeof Options>;

export const parse = (argv: string[]): Options =>
  parseWith(argv, Options, (command) =>
    command.name("doctor")
      .description(
        "Tries every sandbox for real and says which are usable; for the others, the exact missing piece and the " +
          "command that mends it. Exits 0 when one is usable, else 3.",
      )
      .option("--json", "one JSON object")
      .option("-v, --verbose", "print the programs that are started"));

/** A provider that hangs is a finding, not a reason to hang with it. */
const TRIAL_MS = 60_000;

export async function run(options: Options, ctx: Context, lend: Lend = withProviders): Promise<number> {
  const sandboxes = await lend(ctx, async (providers) => {
    const asked = await askAll(providers, ctx, TRIAL_MS, (provider, signal) => provider.diagnose(signal));
    return asked.map(({ name, answer, absent }) =>
      answer ?? {
        name: name as Diagnosis["name"],
        usable: false,
        missing: [{ what: absent!, fix: "see whether the engine answers by itself" }],
        capabilities: null,
      }
    );
  });
  const machine = machineFindings(await machineFacts(ctx.env, ctx.cwd));
  const { version, platform } = versionFacts();
  if (options.json) ctx.out(JSON.stringify({ version, platform, sandboxes, machine }));
  else for (const line of report(`gym-harbor ${version}, ${platform}`, sandboxes, machine)) ctx.out(line);
  return sandboxes.some((one) => one.usable) ? EXIT.ok : EXIT.machine;
}

/** What a person reads. */
export function report(title: string, sandboxes: readonly Diagnosis[], machine: readonly Missing[]): string[] {
  const automatic = sandboxes.find((one) => one.usable && one.name !== "host");
  return [
    title,
    ...sandboxes.flatMap((one) => ["", ...paragraph(one)]),
    ...(machine.length > 0 ? ["", "this machine", ...machine.flatMap((one) => finding("note", one))] : []),
    "",
    automatic !== undefined
      ? `--sandbox auto takes ${automatic.name}.`
      : sandboxes.some((one) => one.usable)
      ? "--sandbox auto finds nothing to start images with; --sandbox host works, and is taken only when it is named."
      : "No sandbox is usable: mend one of the above.",
  ];
}

function paragraph({ name, usable, missing, capabilities, facts = [] }: Diagnosis): string[] {
  const able = capabilities === null ? [] : [
    capabilities.version,
    `networks: ${capabilities.networks.join(", ")}`,
    `limits: ${capabilities.limits}`,
    `users: ${capabilities.users === "any" ? "any" : "your own id only"}`,
    capabilities.build ? "builds images" : "builds no images",
    ...(capabilities.gpu ? ["GPUs"] : []),
  ];
  return [
    `${name.padEnd(7)} ${usable ? "usable" : "not usable"}`,
    ...(able.length > 0 ? [`  ${able.join("; ")}`] : []),
    ...facts.map((fact) => `  ${fact}`),
    ...missing.flatMap((one) => finding(usable ? "note" : "missing", one)),
  ];
}

const finding = (word: string, { what, fix }: Missing): string[] => [
  `  ${`${word}:`.padEnd(9)}${what}`,
  ...(fix === "" ? [] : [`  ${"fix:".padEnd(9)}${fix}`]),
];
