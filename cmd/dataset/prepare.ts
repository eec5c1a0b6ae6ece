/** `dataset prepare`: everything that a run needs to know and have before its first episode, once for all runs. */
import { episodeSettings } from "../../lib/episode/settings.ts";
import type { z } from "zod";
import type { Context } from "../../lib/context.ts";
import { EXIT, HarborError } from "../../lib/errors.ts";
import type { RunInput } from "../../lib/dataset/input.ts";
import type { PlannedTask } from "../../lib/episode/plan.ts";
import type { Done, Prepared } from "../../lib/images/prepare.ts";
import { pullImage } from "../../lib/images/pull.ts";
import { recordFacts } from "../../lib/images/record_files.ts";
import { byCodePoint } from "../../lib/files/order.ts";
import { screen } from "../../lib/report/screen.ts";
import { runPaths } from "../../lib/rollouts/paths.ts";
import { RowMaker, sourceLabel } from "../../lib/rollouts/rows.ts";
import { runConfig } from "../../lib/rollouts/run_config.ts";
import { RunStore } from "../../lib/rollouts/store.ts";
import { pool } from "../../lib/runtime/pool.ts";
import { isUtf8Locale } from "../../lib/runtime/terminal.ts";
import { resolveTarget } from "../../lib/target/resolve.ts";
import { providerName } from "../../providers/mod.ts";
import { readEnvYaml } from "../_env_yaml.ts";
import { readSelected, recordDataset, refuseUnloadable } from "../_evaluate.ts";
import { type ImageSetup, imageSetup } from "../_images.ts";
import { parseWith } from "../_options.ts";
import { type Overrides, parseOverrides } from "../_overrides.ts";
import { composeOverlays } from "../_compose.ts";
import { lazily, prepareImages, refuseMissing, starts, unrecorded } from "../_prepare.ts";
import { PrepareOptions, withPrepareOptions } from "../_run_options.ts";
import { RunSandboxes } from "../_run_sandboxes.ts";

export type Options = z.infer<typeof PrepareOptions>;

export const parse = (argv: string[]): Options =>
  parseWith(argv, PrepareOptions, (command) =>
    withPrepareOptions(
      command.name("dataset prepare").description(
        "Builds what has to be built, records what every image is, and writes what a run starts from. Runs that " +
          "begin after its line 'Run config written to …' read and build nothing again. --sandbox namespace also " +
          "pulls; docker and podman pull when a run starts. Exit 0: no selected task is left out.",
      ),
    ));

/** The harness whose files are written: any other makes its own from the same records. */
const AGENT = "harbor_oracle";

export async function run(options: Options, ctx: Context): Promise<number> {
  const overrides = parseOverrides(options.overrides, readEnvYaml(ctx.cwd));
  if (options.sandbox !== "auto") providerName(options.sandbox);
  const target = resolveTarget(options.target, ctx.cwd);
  const paths = runPaths({
    cwd: ctx.cwd,
    taskset: target.taskset,
    agentName: AGENT,
    validation: false,
    output: options.output,
  });
  const view = screen(ctx, { ...options, utf8: isUtf8Locale(ctx.env) });
  const setup = imageSetup(options, overrides, ctx, view.emit, target.bundle);
  try {
    const input = await readSelected(target, options, overrides, ctx, view.emit);
    if (!options.skipUnloadable) await refuseUnloadable(input, paths);
    await recordDataset(input, ctx, view.emit);
    await RunStore.check(paths);
    const given = { name: options.sandbox, options: overrides.sandbox, emit: view.emit, images: setup };
    await using sandboxes = new RunSandboxes(ctx, given);
    const note = (text: string) => view.emit({ kind: "note", text });
    await using store = await RunStore.open(paths, { clock: ctx.clock, signal: ctx.signal, note });
    const provider = lazily(sandboxes);
    const prepared = await prepareImages({
      tasks: input.tasks.map(({ task }) => task),
      folder: target.datasetFolder,
      setup,
      sandbox: options.sandbox,
      provider,
      emit: view.emit,
      scratch: sandboxes.scratch,
      logs: `${paths.folder}/builds`,
      composeOverlays: composeOverlays(episodeSettings(overrides.harbor_environment_server), ctx.cwd),
      groups: undefined,
    }, ctx);
    const skipped = { ...input.unloadable, ...leftOut(prepared) };
    await store.write(paths.skipped, json(skipped));
    if (setup.offline) {
      const sandbox = await provider();
      await refuseMissing(prepared, async (name) => await sandbox?.local?.(name, ctx.signal) !== undefined);
    }
    const fatal = unrecorded(prepared);
    if (fatal !== undefined) throw fatal;
    if (options.sandbox === "namespace") {
      Object.assign(skipped, await pullAll(prepared, setup, ctx, view.emit));
      await store.write(paths.skipped, json(skipped));
    }

    const planned = input.tasks.filter(({ task }) => !Object.hasOwn(skipped, task.id))
      .map((one, taskIndex): PlannedTask => ({ ...one, taskIndex }));
    await writeInputs(store, { input, overrides, setup, planned, sandbox: sandboxes.name });
    await store.write(paths.images, json(references(prepared, skipped)));
    for (const one of prepared.done) ctx.out(options.json ? JSON.stringify(one) : line(one));
    for (const [id, reason] of Object.entries(skipped)) ctx.note(`skipped: ${id}: ${reason}`);
    note(`Run config written to ${paths.runConfig}; ${planned.length} task(s) prepared`);
    return Object.keys(skipped).length === 0 ? EXIT.ok : EXIT.no;
  } finally {
    view.close();
  }
}

interface Inputs {
  input: RunInput;
  overrides: Overrides;
  setup: ImageSetup;
  planned: readonly PlannedTask[];
  sandbox: string;
}

/** Rows and run config, as a run of the oracle would write them. */
async function writeInputs(store: RunStore, { input, overrides, setup, planned, sandbox }: Inputs): Promise<void> {
  const { target, digests } = input;
  const facts = {
    taskset: target.taskset,
    taskSource: sourceLabel(target.taskset),
    datasetDigest: digests.dataset_digest,
    agentName: AGENT,
  };
  const rows = new RowMaker({ ...facts, createParams: overrides.responses_create_params });
  const lines = planned.map((one) => JSON.stringify(rows.taskRow(one)) + "\n");
  await store.write(store.paths.taskRows, lines.join(""));
  const config = runConfig(planned, {
    ...facts,
    folder: target.datasetFolder,
    sandbox,
    settings: overrides.harbor_environment_server,
    sandboxOptions: overrides.sandbox,
    builds: setup.builds,
    records: recordFacts(target.datasetFolder),
  });
  await store.write(store.paths.runConfig, config);
}

const leftOut = ({ refused, failures }: Prepared): Record<string, string> => ({
  ...refused,
  ...Object.fromEntries(failures.flatMap(({ tasks, error }) => tasks.map((id) => [id, error.message]))),
});

/** What a run of the prepared tasks starts (images.json), sorted. */
function references({ images }: Prepared, skipped: Readonly<Record<string, string>> = {}): string[] {
  const left = new Map([...images].filter(([task]) => !Object.hasOwn(skipped, task)));
  return [...new Set(starts({ images: left }).flatMap(({ reference }) => reference ?? []))].sort(byCodePoint);
}

const PULLS_TOGETHER = 2;

/**
 * Our own sandbox starts from our own store: what is not there yet is brought now, while there is a network. Answers with
 * the tasks whose images could not be had, and why.
 */
async function pullAll(
  prepared: Prepared,
  setup: ImageSetup,
  ctx: Context,
  emit: Parameters<typeof pullImage>[3],
): Promise<Record<string, string>> {
  const failed = new Map<string, string>();
  const wanted = references(prepared).filter((reference) => !reference.startsWith("hb__"));
  await pool(wanted, PULLS_TOGETHER, async (reference) => {
    try {
      if (await setup.store.find(reference, setup.platform) !== undefined) return;
      await pullImage(reference, setup, ctx.signal, emit);
    } catch (error) {
      ctx.signal.throwIfAborted();
      if (!(error instanceof HarborError)) throw error;
      failed.set(reference, error.message);
    }
  }, ctx.signal);
  ctx.signal.throwIfAborted();
  return Object.fromEntries([...prepared.images].flatMap(([task, roles]) => {
    const reasons = [...roles.values()].flatMap((start) =>
      start instanceof HarborError ? [] : failed.get(start.reference ?? "") ?? []
    );
    return reasons.length === 0 ? [] : [[task, reasons[0]!]];
  }));
}

const line = ({ reference, how, tasks }: Done): string => `${reference}\t${how}\t${tasks.length}`;
const json = (value: unknown): string => JSON.stringify(value, null, 2) + "\n";
