/** `check`: which tasks load, and why the others do not. Starts nothing, writes nothing, needs no engine. */
import { statSync } from "node:fs";
import { resolve } from "node:path";
import { setImmediate } from "node:timers/promises";
import { z } from "zod";
import type { Context } from "../lib/context.ts";
import { openDataset } from "../lib/dataset/load.ts";
import { EXIT, HarborError } from "../lib/errors.ts";
import { resolveTarget } from "../lib/target/resolve.ts";
import type { LoadedTask } from "../lib/task/load.ts";
import { readTextFile } from "../lib/task/read.ts";
import { Findings } from "../lib/task/refusals.ts";
import { readSettings } from "../lib/task/settings.ts";
import type { Finding, ImagePlan } from "../lib/task/task.ts";
import { parseWith } from "./_options.ts";

const Options = z.strictObject({
  paths: z.array(z.string()).min(1),
  json: z.boolean().default(false),
  strict: z.boolean().default(false),
  resolved: z.boolean().default(false),
  schemaOnly: z.boolean().default(false),
  quiet: z.boolean().default(false),
  verbose: z.boolean().default(false),
});
export type Options = z.infer<typeof Options>;

export const parse = (argv: string[]): Options =>
  parseWith(argv, Options, (command) =>
    command.name("check")
      .description("Says which tasks load, and why the others do not. Starts nothing and writes nothing.")
      .argument("<paths...>", "task folders, folders of task folders; with --schema-only task.toml files")
      .option("--json", "one JSON object a line")
      .option("--strict", "Harbor 0.25.0's verdict instead of NeMo Gym's")
      .option("--resolved", "add what differs from the defaults")
      .option("--schema-only", "check task.toml files alone, whatever lies beside them")
      .option("-q, --quiet", "no notes, only results")
      .option("-v, --verbose", "also say which folder each path stands for"));

/** One line of the report. */
interface Line {
  path: string;
  /** Null for a fault of the dataset as a whole. */
  id: string | null;
  ok: boolean;
  errors: Finding[];
  warnings: Finding[];
  mode: ImagePlan["mode"];
  steps: number;
  task_digest: string | null;
  package_hash: string | null;
  context_hash: string | null;
  resolved?: Record<string, unknown> | null;
}

export async function run(options: Options, ctx: Context): Promise<number> {
  const report = new Report(options, ctx);
  for await (const line of options.schemaOnly ? schemaLines(options, ctx) : taskLines(options, ctx)) {
    ctx.signal.throwIfAborted();
    report.add(line);
  }
  return report.close();
}

/** Tasks between two looks at the event loop: output leaves, Ctrl-C arrives. */
const BATCH = 128;

async function* taskLines(options: Options, ctx: Context): AsyncGenerator<Line> {
  // Every path is looked at before the first line, so that a wrong command line prints nothing else.
  const targets = options.paths.map((path) => resolveTarget(path, ctx.cwd));
  let count = 0;
  for (const target of targets) {
    if (options.verbose) ctx.note(`${target.named} is ${target.folder}`);
    const dataset = openDataset(target, { strict: options.strict });
    if (dataset.errors.length + dataset.warnings.length > 0) yield lineWithoutFolder(target.named, dataset);
    for (const loaded of dataset.tasks()) {
      if (count++ % BATCH === 0) await setImmediate();
      const line = taskLine(loaded, options);
      if (loaded.task?.image.mode === "compose" && !options.strict) {
        const { composeWarnings } = await import("./_compose_check.ts");
        line.warnings.push(...composeWarnings(loaded.task, loaded.shownAs, ctx.env));
      }
      yield line;
    }
  }
}

function* schemaLines(options: Options, ctx: Context): Generator<Line> {
  for (const path of options.paths) {
    if (statSync(resolve(ctx.cwd, path), { throwIfNoEntry: false }) === undefined) {
      throw new HarborError("target.missing", `${path} does not exist`, { hint: "name task.toml files" });
    }
  }
  for (const path of options.paths) {
    const findings = new Findings();
    const read = readTextFile(resolve(ctx.cwd, path));
    if (!read.ok) {
      findings.add(read.fault === "encoding" ? "toml.encoding" : "task.unreadable", { at: path, detail: read.detail }, {
        file: path,
      });
    }
    const settings = read.ok
      ? readSettings(read.text, findings, { strict: options.strict, shownAs: path, file: path })
      : null;
    yield {
      ...lineWithoutFolder(path, findings),
      steps: settings?.config.steps?.length ?? 0,
      ...(options.resolved && { resolved: settings?.resolved() ?? null }),
    };
  }
}

function lineWithoutFolder(path: string, { errors, warnings }: Pick<Line, "errors" | "warnings">): Line {
  const ok = errors.length === 0;
  const hashes = { task_digest: null, package_hash: null, context_hash: null };
  return { path, id: null, ok, errors, warnings, mode: "none", steps: 0, ...hashes };
}

function taskLine(loaded: LoadedTask, { resolved }: Options): Line {
  const { hashes } = loaded;
  return {
    path: loaded.shownAs,
    id: loaded.id,
    ok: loaded.errors.length === 0,
    errors: loaded.errors,
    warnings: [...loaded.warnings],
    mode: loaded.mode,
    steps: loaded.steps,
    task_digest: hashes.task_digest,
    package_hash: hashes.package_hash,
    context_hash: hashes.context_hash,
    ...(resolved && { resolved: loaded.resolved() }),
  };
}

/** Prints lines as they come and counts them. */
class Report {
  #ok = 0;
  #failed = 0;

  constructor(readonly options: Options, readonly ctx: Context) {}

  add(line: Line): void {
    if (line.id !== null || this.options.schemaOnly || !line.ok) line.ok ? this.#ok++ : this.#failed++;
    if (this.options.json) {
      // A replacer is called for every value: only resolved ones may hold what needs it.
      return this.ctx.out(this.options.resolved ? JSON.stringify(line, exactIntegers) : JSON.stringify(line));
    }
    if (line.id !== null || this.options.schemaOnly || !line.ok) this.ctx.out(textLine(line));
    if (this.options.resolved && line.ok) this.ctx.out(`       ${JSON.stringify(line.resolved, exactIntegers)}`);
    if (!this.options.quiet) this.#notes(line);
  }

  #notes({ errors, warnings }: Line): void {
    for (const one of errors.slice(1)) this.ctx.note(`error[${one.code}]: ${said(one)}`);
    for (const hint of new Set(errors.map((one) => one.hint))) if (hint !== undefined) this.ctx.note(`hint: ${hint}`);
    for (const one of warnings) {
      this.ctx.note(`warning[${one.code}]: ${said(one)}${one.hint === undefined ? "" : ` (${one.hint})`}`);
    }
  }

  close(): number {
    const what = this.options.schemaOnly ? "file" : "task";
    if (!this.options.json && !this.options.quiet) {
      this.ctx.note(`${counted(this.#ok, what)} ${this.#ok === 1 ? "loads" : "load"}, ${this.#failed} not`);
    }
    return this.#failed === 0 ? EXIT.ok : EXIT.no;
  }
}

function textLine({ path, ok, errors, warnings, mode, steps }: Line): string {
  if (!ok) {
    const [first, ...more] = errors as [Finding, ...Finding[]];
    const where = first.message.includes(path) ? "" : `${path.replaceAll("\n", "\\n")}  `;
    return `error  ${where}${said(first)}${more.length > 0 ? ` (and ${more.length} more)` : ""}`;
  }
  const facts = [
    mode === "none" ? [] : mode,
    steps > 0 ? counted(steps, "step") : [],
    warnings.length > 0 ? counted(warnings.length, "warning") : [],
  ];
  return `ok     ${path.replaceAll("\n", "\\n")}  ${facts.flat().join(", ")}`.trimEnd();
}

const counted = (count: number, what: string): string => `${count} ${what}${count === 1 ? "" : "s"}`;

/** On one line, also where a file's name breaks over two. */
const said = ({ message, line }: Finding): string =>
  (line === undefined ? message : `${message} (line ${line})`).replaceAll("\n", "\\n");

/** Integers beyond 2^53 keep their digits, where the runtime can write them. */
function exactIntegers(_: string, value: unknown): unknown {
  if (typeof value !== "bigint") return value;
  const { rawJSON } = JSON as unknown as { rawJSON?: (text: string) => unknown };
  return rawJSON === undefined ? Number(value) : rawJSON(String(value));
}
