/** `doctor`: which sandboxes work here, tried for real, what mends the others; where images lie, who serves them. */
import { z } from "zod";
import type { Context } from "../lib/context.ts";
import { EXIT } from "../lib/errors.ts";
import { localLogins, loginHosts } from "../lib/registry/credential_files.ts";
import { type Reach, reachAll } from "../lib/registry/reach.ts";
import type { RegistrySettings } from "../lib/registry/settings.ts";
import { systemFetch } from "../lib/runtime/fetch.ts";
import { versionFacts } from "../lib/runtime/version.ts";
import { machineFacts, machineFindings } from "../lib/sandbox/machine.ts";
import type { Diagnosis, Missing } from "../lib/sandbox/provider.ts";
import { readEnvYaml } from "./_env_yaml.ts";
import { imageSetup } from "./_images.ts";
import { parseWith } from "./_options.ts";
import { parseOverrides } from "./_overrides.ts";
import { ImageOptions, withImageOptions } from "./_run_options.ts";
import { askAll, type Lend, withProviders } from "./_sandboxes.ts";

const Options = z.strictObject({
  overrides: z.array(z.string()).default([]),
  ...ImageOptions,
  json: z.boolean().default(false),
  verbose: z.boolean().default(false),
});
export type Options = z.infer<typeof Options>;

export const parse = (argv: string[]): Options =>
  parseWith(argv, Options, (command) =>
    withImageOptions(command.name("doctor"))
      .argument("[overrides...]", "settings to try: sandbox.<name>.…, registries.<host>.mirrors=[…]")
      .description(
        "Tries every sandbox for real and says which are usable; for the others, the exact missing piece and the " +
          "command that mends it. Also where images lie, how much room is left, and which registries answer. Exits 0 " +
          "when a sandbox is usable, else 3.",
      )
      .option("--json", "one JSON object")
      .option("-v, --verbose", "print the programs that are started"));

/** A provider that hangs is a finding, not a reason to hang with it. */
const TRIAL_MS = 60_000;

export async function run(
  options: Options,
  ctx: Context,
  lend: Lend = withProviders,
  ask: typeof fetch = systemFetch,
): Promise<number> {
  const overrides = parseOverrides(options.overrides, readEnvYaml(ctx.cwd));
  const images = imageSetup(options, overrides, ctx, () => {});
  const sandboxes = await lend(ctx, { ...images, options: overrides.sandbox }, async (providers) => {
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
  const registries = images.offline ? [] : await registriesOf(images.registries, ctx, ask);
  const { version, platform } = versionFacts();
  if (options.json) ctx.out(JSON.stringify({ version, platform, sandboxes, machine, registries }));
  else for (const line of report(`gym-harbor ${version}, ${platform}`, sandboxes, machine, registries)) ctx.out(line);
  return sandboxes.some((one) => one.usable) ? EXIT.ok : EXIT.machine;
}

/** Docker Hub, the registries of settings, and those of this user's logins. */
async function registriesOf(
  settings: RegistrySettings,
  { env, clock, runner, signal }: Context,
  ask: typeof fetch,
): Promise<Reach[]> {
  const credentials = localLogins({ env, runner, emit: () => {} });
  return await reachAll(await loginHosts(env), { fetch: ask, clock, settings, credentials }, signal);
}

/** What a person reads. */
export function report(
  title: string,
  sandboxes: readonly Diagnosis[],
  machine: readonly Missing[],
  registries: readonly Reach[] = [],
): string[] {
  const automatic = sandboxes.find((one) => one.usable && one.name !== "host");
  return [
    title,
    ...sandboxes.flatMap((one) => ["", ...paragraph(one)]),
    ...(registries.length > 0 ? ["", "registries", ...registries.map(registryLine)] : []),
    ...(machine.length > 0 ? ["", "this machine", ...machine.flatMap((one) => finding("note", one))] : []),
    "",
    automatic !== undefined
      ? `--sandbox auto takes ${automatic.name}.`
      : sandboxes.some((one) => one.usable)
      ? "--sandbox auto finds nothing to start images with; --sandbox host works, and is taken only when it is named."
      : "No sandbox is usable: mend one of the above.",
  ];
}

const registryLine = ({ host, address, answers, login, reason }: Reach): string =>
  `  ${host}: ${answers ? "answers" : `no answer from ${address} (${reason})`}${login ? "; a login is here" : ""}`;

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
