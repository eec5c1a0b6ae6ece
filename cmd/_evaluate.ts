/** What `validate` and `run` do: load, run, tell. The two differ in names, in what is left out and in the exit code. */
import { mkdir } from "node:fs/promises";
import { join, relative } from "node:path";
import { providerName } from "../providers/mod.ts";
import { reconcileManifest } from "../lib/dataset/manifest.ts";
import type { Agent } from "../lib/agent/agent.ts";
import type { Context } from "../lib/context.ts";
import { HarborError } from "../lib/errors.ts";
import { evaluate, type Evaluation, type EvaluationDeps, type EvaluationResult } from "../lib/episode/evaluate.ts";
import { hiddenPaths, neighboursOf } from "../lib/episode/hidden.ts";
import { readInput, type RunInput } from "../lib/dataset/input.ts";
import { type EpisodeSettings, episodeSettings } from "../lib/episode/settings.ts";
import type { Emit } from "../lib/events.ts";
import { writeAtomic } from "../lib/files/atomic.ts";
import { tailOfFile } from "../lib/files/ends.ts";
import { closing } from "../lib/report/closing.ts";
import { screen } from "../lib/report/screen.ts";
import { lines, TABLE_HEADER, tableLine } from "../lib/report/table.ts";
import type { TaskRecord } from "../lib/report/summary.ts";
import { type ImageSetup, imageSetup } from "./_images.ts";
import { composeOverlays } from "./_compose.ts";
import { prepareImages, type PrepareRequest } from "./_prepare.ts";
import { readEnvYaml } from "./_env_yaml.ts";
import { type RunPaths, runPaths } from "../lib/rollouts/paths.ts";
import { runConfig } from "../lib/rollouts/run_config.ts";
import { recordFacts } from "../lib/images/record_files.ts";
import { sourceLabel } from "../lib/rollouts/rows.ts";
import { isUtf8Locale } from "../lib/runtime/terminal.ts";
import { versionFacts } from "../lib/runtime/version.ts";
import type { Owner } from "../lib/sandbox/owner.ts";
import type { SandboxProvider } from "../lib/sandbox/provider.ts";
import { resolveTarget, type Target } from "../lib/target/resolve.ts";
import { readHarborIgnore } from "../lib/task/harborignore.ts";
import { type Overrides, parseOverrides } from "./_overrides.ts";
import type { PrepareOptions, RunOptions } from "./_run_options.ts";
import { RunSandboxes, type RunSandboxesOptions } from "./_run_sandboxes.ts";

export interface Request {
  command: Evaluation["command"];
  options: RunOptions;
  agent: Agent;
  /** A folder that does not load stops a run, unless told otherwise. */
  skipUnloadable: boolean;
  exitOf(result: EvaluationResult): number;
}

/** Runs to the end and returns the exit code. Tests give a provider of their own. */
export async function evaluateTarget(
  request: Request,
  ctx: Context,
  provider?: (owner: Owner, scratch: string) => SandboxProvider,
): Promise<number> {
  const { options, agent } = request;
  const overrides = parseOverrides(options.overrides, readEnvYaml(ctx.cwd));
  const settings = episodeSettings(overrides.harbor_environment_server);
  if (options.sandbox !== "auto") providerName(options.sandbox); // a wrong word is told before anything is read
  const target = resolveTarget(options.target, ctx.cwd);
  const paths = runPaths({
    cwd: ctx.cwd,
    taskset: target.taskset,
    agentName: agent.name,
    validation: request.command === "gym dataset validate",
    output: options.output,
  });
  const view = screen(ctx, { ...options, utf8: isUtf8Locale(ctx.env) });
  const images = imageSetup(options, overrides, ctx, view.emit, target.bundle);
  const input = await readSelected(target, options, overrides, ctx, view.emit);
  if (!options.allowUnsupportedPairing) refusePairing(input, agent);
  if (!request.skipUnloadable) await refuseUnloadable(input, paths);
  await recordDataset(input, ctx, view.emit);

  const sandboxes = { name: options.sandbox, options: overrides.sandbox, emit: view.emit, images, provider };
  const result = await evaluated(request, { input, paths, settings, overrides }, ctx, sandboxes).finally(view.close);
  await tellResult(result, paths, options, ctx);
  return request.exitOf(result);
}

interface Plan {
  input: RunInput;
  paths: RunPaths;
  settings: EpisodeSettings;
  overrides: Overrides;
}

/** Runs what is planned; when it settles, nothing of the run is left on this machine but its files. */
async function evaluated(
  request: Request,
  { input, paths, settings, overrides }: Plan,
  ctx: Context,
  given: RunSandboxesOptions & { images: ImageSetup },
): Promise<EvaluationResult> {
  const { options, agent } = request;
  const { target, digests } = input;
  const taskSource = sourceLabel(target.taskset);
  await using sandboxes = new RunSandboxes(ctx, given);
  return await evaluate(
    {
      command: request.command,
      target: options.target,
      taskset: target.taskset,
      taskSource,
      dataset: {
        folder: target.datasetFolder,
        source: "local",
        digest: digests.dataset_digest,
        dataset_toml_digest: digests.dataset_toml_digest ?? null,
        dataset_files_digest: digests.dataset_files_digest ?? null,
      },
      tasks: input.tasks,
      unloadable: input.unloadable,
      agent,
      settings,
      repeats: repeatsOf(request, input, overrides),
      concurrency: options.concurrency,
      resume: options.resume,
      keepFailed: options.keepFailed,
      createParams: overrides.responses_create_params,
      paths,
      hide: hiddenPaths(
        target.folder,
        input.tasks.map(({ task }) => task.folder),
        paths,
        target.kind === "task" ? neighboursOf(target.datasetFolder) : [],
      ),
      runConfig: (tasks) =>
        runConfig(tasks, {
          taskset: target.taskset,
          taskSource,
          folder: target.datasetFolder,
          datasetDigest: digests.dataset_digest,
          agentName: agent.name,
          sandbox: sandboxes.name,
          settings: overrides.harbor_environment_server,
          sandboxOptions: overrides.sandbox,
          builds: given.images.builds,
          records: recordFacts(target.datasetFolder),
        }),
    },
    episodeDeps(ctx, sandboxes, input, {
      setup: given.images,
      logs: join(paths.folder, "builds"),
      composeOverlays: composeOverlays(settings, ctx.cwd),
    }),
    ctx.signal,
  );
}

function episodeDeps(
  ctx: Context,
  sandboxes: RunSandboxes,
  input: RunInput,
  images: Pick<PrepareRequest, "setup" | "logs" | "composeOverlays">,
): EvaluationDeps {
  const { emit, scratch } = sandboxes;
  const folder = input.target.datasetFolder;
  return {
    provider: () => sandboxes.provider(),
    clock: ctx.clock,
    emit: sandboxes.emit,
    owner: sandboxes.owner,
    scratch: sandboxes.scratch,
    prepare(tasks, provider) {
      const sandbox = {
        sandbox: provider.name,
        provider: () => Promise.resolve(provider),
        groups: provider,
      };
      return prepareImages({ tasks, folder, emit, scratch, ...sandbox, ...images }, ctx);
    },
    offline: images.setup.offline,
    hostEnv: ctx.env,
    version: versionFacts().version,
    digestOf: ({ task }) => Promise.resolve().then(() => input.digestNow(task)),
    ignored({ task }) {
      const ignore = readHarborIgnore(task.folder);
      return (path, kind) => ignore.excludes(path, kind);
    },
  };
}

/** The selected tasks, with what is to be said about them. */
export async function readSelected(
  target: Target,
  options: Pick<PrepareOptions, "onlyTasks" | "excludeTasks">,
  overrides: Overrides,
  ctx: Context,
  emit: Emit,
): Promise<RunInput> {
  const selection = { only: options.onlyTasks, exclude: options.excludeTasks };
  const input = await readInput(target, selection, overrides.gym.defaults, ctx.signal);
  tellInput(input, overrides, emit);
  return input;
}

function tellInput(input: RunInput, overrides: Overrides, emit: Emit): void {
  for (const key of overrides.withoutEffect) emit({ kind: "warning", text: `${key} has no effect in this version` });
  for (const { task, finding } of input.warnings) {
    const hint = finding.hint === undefined ? "" : ` (${finding.hint})`;
    emit({ kind: "warning", text: `${finding.message}${hint}`, ...(task !== null && { task }) });
  }
}

/** manifest.toml of a dataset folder; a single task gets none, and a bundle is left as it was written. */
export async function recordDataset(input: RunInput, ctx: Context, emit: Emit): Promise<void> {
  if (input.target.kind === "task" || input.target.bundle !== undefined) return;
  const facts = { tasks: input.folderDigests, digests: input.digests, complete: input.complete };
  const { note } = await reconcileManifest(input.target.datasetFolder, facts, ctx);
  if (note !== undefined) emit({ kind: "note", text: note });
}

/** `[gym] allowed_agents`; the oracle is always admitted. */
function refusePairing(input: RunInput, agent: Agent): void {
  const allowed = input.settings.gym.allowed_agents;
  if (allowed === undefined || agent.needsSolution || allowed.includes(agent.name)) return;
  const admits = allowed.length === 0 ? "the oracle alone" : allowed.join(", ");
  const file = join(input.target.datasetFolder, "dataset.toml");
  throw new HarborError("task.unsupported", `${file} [gym] allowed_agents admits ${admits}, not ${agent.name}`, {
    hint: "--allow-unsupported-pairing runs it all the same",
  });
}

export async function refuseUnloadable(input: RunInput, paths: RunPaths): Promise<void> {
  const reasons = Object.entries(input.unloadable);
  if (reasons.length === 0) return;
  await mkdir(paths.folder, { recursive: true })
    .then(() => writeAtomic(paths.skipped, JSON.stringify(input.unloadable, null, 2) + "\n"))
    .catch(() => {}); // the refusal below is what matters, and it names the first reason itself
  const [id, first] = reasons[0]!;
  if (input.tasks.length === 0) {
    throw new HarborError("task.invalid", `No task under ${input.target.named} loads; first error: ${id}: ${first}`, {
      hint: `gym-harbor check ${input.target.named} lists them all`,
    });
  }
  throw new HarborError(
    "task.invalid",
    `${reasons.length} task(s) could not load (see ${paths.folder}/skipped.json); first: ${id}: ${first}`,
    { hint: "Use --skip-unloadable to explicitly run only the loadable subset." },
  );
}

function repeatsOf({ command, options }: Request, input: RunInput, overrides: Overrides): number {
  if (options.numRepeats !== undefined) return options.numRepeats;
  if (overrides.gym.defaults.num_repeats !== undefined) return overrides.gym.defaults.num_repeats;
  return command === "gym dataset validate" ? 1 : input.settings.gym.defaults?.num_repeats ?? 1;
}

async function tellResult(
  result: EvaluationResult,
  paths: RunPaths,
  options: RunOptions,
  ctx: Context,
): Promise<void> {
  const table = lines(result);
  if (options.json) { for (const line of table) ctx.out(JSON.stringify(line)); }
  else {
    const repeats = table.some((line) => (line.rollout_index ?? 0) > 0);
    ctx.out(TABLE_HEADER);
    for (const line of table) ctx.out(tableLine(line, repeats));
    if (table.length === 0) ctx.out(`-\tno rollouts written at ${paths.rollouts}\t-`);
  }
  if (options.quiet) return;
  const outputs = new Map<TaskRecord, string>();
  for (const record of result.records.filter(isTrouble).slice(0, 20)) {
    const path = record.entry.paths?.test_stdout;
    if (path) outputs.set(record, await tailOfFile(join(paths.folder, path), 16_384).catch(() => ""));
  }
  const shown = relative(ctx.cwd, paths.folder);
  const folder = shown === "" ? "." : shown.startsWith("..") ? paths.folder : shown;
  for (
    const line of closing({
      ...result,
      folder,
      rollouts: join(folder, `${paths.stem}.jsonl`),
      failures: join(folder, `${paths.stem}_failures.jsonl`),
      outputOf: (record) => outputs.get(record) ?? "",
    })
  ) ctx.note(line);
}

const isTrouble = ({ entry }: TaskRecord): boolean =>
  entry.status === "failed" || entry.mask_sample === true || (entry.reward !== null && entry.reward < 1);
