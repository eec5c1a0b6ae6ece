/** A whole run over the fake provider: what to give evaluate(), and the files it left. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { agentNamed } from "../../lib/agent/mod.ts";
import { evaluate, type Evaluation, type EvaluationDeps, type EvaluationResult } from "../../lib/episode/evaluate.ts";
import { episodeSettings } from "../../lib/episode/settings.ts";
import type { Event } from "../../lib/events.ts";
import { prepareOnHost } from "../../lib/images/prepare.ts";
import { runPaths } from "../../lib/rollouts/paths.ts";
import { systemClock } from "../../lib/runtime/clock.ts";
import { thisOwner } from "../../lib/sandbox/owner.ts";
import type { Task } from "../../lib/task/task.ts";
import { FakeProvider } from "./fake_provider.ts";
import { plainTask } from "./loaded_task.ts";
import { readRows, type TempFolder } from "./tasks.ts";

/** Digest of a test task: its id, or what the test gives. */
export const digestOfId = (id: string): string => id.padEnd(64, "0").slice(0, 64);

export interface Given {
  provider?: FakeProvider;
  tasks?: Task[];
  run?: Partial<Evaluation> & { agentName?: string };
  deps?: Partial<EvaluationDeps>;
  signal?: AbortSignal;
  digests?: Record<string, string>;
}

export interface Ran {
  result: EvaluationResult;
  provider: FakeProvider;
  events: Event[];
  paths: Evaluation["paths"];
  // deno-lint-ignore no-explicit-any -- read as written
  rows: any[];
  // deno-lint-ignore no-explicit-any -- read as written
  failures: any[];
  // deno-lint-ignore no-explicit-any -- read as written
  summary: any;
  files: string[];
}

/** Tasks named `names` below `folder/data`. */
export const tasksIn = (folder: TempFolder, names: readonly string[]): Task[] =>
  names.map((name) => plainTask(folder.join("my-dataset"), name));

export async function evaluateIn(folder: TempFolder, given: Given = {}): Promise<Ran> {
  const { agentName = "harbor_oracle", ...changes } = given.run ?? {};
  const provider = given.provider ?? new FakeProvider();
  const events: Event[] = [];
  const paths = changes.paths ??
    runPaths({ cwd: folder.path, taskset: "my-dataset", agentName, validation: true, output: "out/rollouts.jsonl" });
  const digest = (id: string) => given.digests?.[id] ?? digestOfId(id);
  const tasks = given.tasks ?? tasksIn(folder, ["hello"]);
  const run: Evaluation = {
    command: "gym dataset validate",
    target: "my-dataset",
    taskset: "my-dataset",
    taskSource: "my_dataset",
    dataset: {
      folder: folder.join("my-dataset"),
      source: "local",
      digest: "e".repeat(64),
      dataset_toml_digest: null,
      dataset_files_digest: null,
    },
    tasks: tasks.map((task) => ({ task, digest: digest(task.id) })),
    unloadable: {},
    agent: agentNamed(agentName, systemClock),
    settings: episodeSettings(),
    repeats: 1,
    concurrency: 2,
    resume: false,
    keepFailed: false,
    createParams: {},
    paths,
    hide: [],
    runConfig: () => "tasksets: {}\n",
    ...changes,
  };
  const result = await evaluate(run, {
    provider: () => Promise.resolve(provider),
    clock: systemClock,
    emit: (event) => void events.push(event),
    owner: thisOwner("testtest"),
    prepare: (tasks) => Promise.resolve(prepareOnHost(tasks)),
    offline: false,
    scratch: folder.join("scratch"),
    hostEnv: {},
    version: "0.0.0",
    digestOf: ({ task }) => Promise.resolve(digest(task.id)),
    ignored: () => () => false,
    ...given.deps,
  }, given.signal ?? new AbortController().signal);
  return { result, provider, events, ...filesOf(paths) };
}

/** What a run left on disk. */
export function filesOf(paths: Evaluation["paths"]) {
  return {
    paths,
    rows: readRows(paths.rollouts),
    failures: readRows(paths.failures),
    summary: existsSync(paths.summary) ? JSON.parse(readFileSync(paths.summary, "utf8")) : undefined,
    files: readdirSync(paths.folder).sort(),
  };
}

/** Texts of notes and warnings. */
export const told = (events: readonly Event[]): string =>
  events.flatMap((event) => (event.kind === "note" || event.kind === "warning" ? [event.text] : [])).join("\n");
