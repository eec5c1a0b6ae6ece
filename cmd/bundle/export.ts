/** `bundle export`: a dataset and every image that its tasks start, in one folder to carry. */
import { join, resolve } from "node:path";
import { z } from "zod";
import { providerName } from "../../providers/mod.ts";
import { exportBundle } from "../../lib/bundle/export.ts";
import { requestOf } from "../../lib/bundle/from_input.ts";
import type { ImageEngine } from "../../lib/bundle/images.ts";
import type { Bundle } from "../../lib/bundle/schema.ts";
import type { Context } from "../../lib/context.ts";
import { EXIT, HarborError } from "../../lib/errors.ts";
import type { Emit } from "../../lib/events.ts";
import { Records } from "../../lib/images/record_files.ts";
import { screen } from "../../lib/report/screen.ts";
import { compiled, programName, selfPath } from "../../lib/runtime/self.ts";
import { isUtf8Locale } from "../../lib/runtime/terminal.ts";
import { versionFacts } from "../../lib/runtime/version.ts";
import type { SandboxProvider } from "../../lib/sandbox/provider.ts";
import { resolveTarget } from "../../lib/target/resolve.ts";
import { readEnvYaml } from "../_env_yaml.ts";
import { readSelected, recordDataset } from "../_evaluate.ts";
import { imageSetup } from "../_images.ts";
import { parseWith } from "../_options.ts";
import { parseOverrides } from "../_overrides.ts";
import { lazily, prepareImages, refuseMissing, unrecorded } from "../_prepare.ts";
import { ImageOptions, withImageOptions } from "../_run_options.ts";
import { RunSandboxes } from "../_run_sandboxes.ts";

const Options = z.strictObject({
  target: z.string(),
  overrides: z.array(z.string()).default([]),
  out: z.string(),
  onlyTasks: z.array(z.string()).default([]),
  excludeTasks: z.array(z.string()).default([]),
  platform: z.string().optional(),
  bake: z.boolean().default(false),
  withBinary: z.boolean().default(false),
  sandbox: z.string().default("auto"),
  ...ImageOptions,
  json: z.boolean().default(false),
  quiet: z.boolean().default(false),
  verbose: z.boolean().default(false),
});
export type Options = z.infer<typeof Options>;

const collect = (value: string, before: string[] | undefined): string[] => [...before ?? [], value];

export const parse = (argv: string[]): Options =>
  parseWith(argv, Options, (command) =>
    withImageOptions(
      command.name("bundle export")
        .description(
          "Prepares a dataset and writes it with all of its images into one folder, to be carried to where there is no\n" +
            "network; 'validate', 'run', 'check' and 'digest' take that folder as it is. What is there from an\n" +
            "interrupted export stays; two exports of the same are equal byte for byte.",
        )
        .argument("<target>", "a task folder, or a folder of task folders")
        .argument("[overrides...]", "key=value, +key=value or ++key=value")
        .requiredOption("--out <dir>", "the folder to write: absent, empty, or an earlier export of the same")
        .option("--only-tasks <pattern>", "only tasks whose names match; may be repeated, or a,b", collect)
        .option("--exclude-tasks <pattern>", "leave out tasks whose names match", collect)
        .option("--platform <os/arch>", "what the images are for (default: builds.platform, linux/amd64)")
        .option("--bake", "build what RUN lines would do in each sandbox, so that they need no network there")
        .option("--with-binary", "put this program inside as well")
        .option("--sandbox <name>", "whose images are taken: docker, podman, namespace, or auto"),
    )
      .option("--json", "what was written, as one JSON object")
      .option("-q, --quiet", "only results, warnings and errors")
      .option("-v, --verbose", "also build output and every program that is started"));

export async function run(options: Options, ctx: Context): Promise<number> {
  const overrides = parseOverrides(options.overrides, readEnvYaml(ctx.cwd));
  refuseWords(options);
  const target = resolveTarget(options.target, ctx.cwd);
  const out = resolve(ctx.cwd, options.out);
  if (`${out}/`.startsWith(`${target.datasetFolder}/`)) {
    throw new HarborError("usage", `--out ${options.out} lies inside ${target.named}`, {
      hint: "name a folder outside of what is exported",
    });
  }
  const view = screen(ctx, { ...options, utf8: isUtf8Locale(ctx.env) });
  const builds = {
    ...overrides.builds,
    ...(options.platform !== undefined && { platform: options.platform }),
    ...(options.bake && { force: true }),
  };
  const setup = imageSetup(options, { ...overrides, builds }, ctx, view.emit, target.bundle);
  try {
    const input = await readSelected(target, options, overrides, ctx, view.emit);
    await recordDataset(input, ctx, view.emit);
    await using sandboxes = new RunSandboxes(ctx, {
      name: options.sandbox,
      options: overrides.sandbox,
      emit: view.emit,
      images: setup,
    });
    const provider = lazily(sandboxes);
    const records = new Records(target.datasetFolder, { clock: ctx.clock, emit: view.emit });
    const prepared = await prepareImages({
      tasks: input.tasks.map(({ task }) => task),
      folder: target.datasetFolder,
      setup,
      sandbox: options.sandbox,
      provider,
      emit: view.emit,
      scratch: sandboxes.scratch,
      logs: join(sandboxes.scratch, "builds"),
      composeOverlays: [],
      groups: undefined, // the sandbox that will run it may be another one
      records,
    }, ctx);
    if (setup.offline) {
      const sandbox = await provider();
      await refuseMissing(
        prepared,
        async (name) =>
          await setup.store.find(name, setup.platform) !== undefined ||
          await sandbox?.local?.(name, ctx.signal) !== undefined,
      );
    }
    const fatal = unrecorded(prepared);
    if (fatal !== undefined) throw fatal;
    const request = requestOf(input, prepared, {
      out,
      records,
      toolVersion: versionFacts().version,
      platform: setup.platform,
      baked: setup.builds.force,
      ...(options.withBinary && { binary: selfPath }),
    });
    const engine = engineOf(await provider());
    const bundle = await exportBundle(
      request,
      {
        platform: setup.platform,
        stores: [setup.store],
        engines: engine === undefined ? [] : [engine],
        ...(!setup.offline && { registry: setup.registry }),
      },
      { clock: ctx.clock, emit: view.emit },
      ctx.signal,
    );
    tell(bundle, options, ctx, view.emit);
    return Object.keys(bundle.skipped).length === 0 ? EXIT.ok : EXIT.no;
  } finally {
    view.close();
  }
}

/** What the words of the command line cannot mean together; told before anything is read. */
function refuseWords({ sandbox, withBinary }: Options): void {
  if (sandbox !== "auto") providerName(sandbox);
  if (sandbox === "host") {
    throw new HarborError("usage", "--sandbox host starts no images", {
      hint: "name the sandbox whose images are taken (docker, podman, namespace), or leave the option out",
    });
  }
  if (withBinary && !compiled) {
    throw new HarborError(
      "usage",
      "--with-binary: this gym-harbor runs from its source, there is no file to put inside",
      {
        hint: "compile it first: bash compile.sh, then export with dist/gym-harbor",
      },
    );
  }
}

/** An engine gives its images out by a save of its own; a sandbox without one has them in our store. */
function engineOf(provider: SandboxProvider | undefined): ImageEngine | undefined {
  if (provider?.local === undefined || provider.saveInto === undefined) return undefined;
  return {
    name: provider.name,
    local: provider.local.bind(provider),
    saveInto: provider.saveInto.bind(provider),
  };
}

const MOST_SHOWN = 10;

function tell({ tasks, images, needs_network, skipped }: Bundle, options: Options, ctx: Context, emit: Emit): void {
  const counts = { tasks: Object.keys(tasks).length, images: images.length };
  ctx.out(
    options.json
      ? JSON.stringify({ path: options.out, ...counts, needs_network, skipped })
      : `${options.out}: tasks: ${counts.tasks}, images: ${counts.images}`,
  );
  for (const [task, reason] of Object.entries(skipped)) emit({ kind: "warning", task, text: `skipped: ${reason}` });
  for (const { task, file, line, why } of needs_network.slice(0, MOST_SHOWN)) {
    emit({ kind: "warning", task, text: `needs a network whatever is carried: ${file}:${line}: ${why}` });
  }
  const more = needs_network.length - MOST_SHOWN;
  if (more > 0) emit({ kind: "warning", text: `and ${more} more lines that need a network, listed in bundle.json` });
  emit({
    kind: "note",
    text: `next: carry ${options.out} over; there: ${programName} validate ${options.out} --offline`,
  });
}
