/**
 * Task folders for tests, written from `{path: text}` maps, and the files that a run leaves, read back. The maps are
 * spelled as in the vectors of Harbor 0.25.0, so a vector's `files` can be written as they are.
 */
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import process from "node:process";
import { Buffer } from "node:buffer";
import { type CliOptions, type CliResult, runCli } from "./cli.ts";

export type FileSpec = string | { text: string; mode?: string } | { hex: string } | { symlink: string } | { dir: 1 };
export type Files = Record<string, FileSpec>;

/** Writes `files` below `root`, in their order. */
export function writeFiles(root: string, files: Files): void {
  mkdirSync(root, { recursive: true });
  for (const [path, spec] of Object.entries(files)) {
    const at = join(root, path);
    mkdirSync(dirname(at), { recursive: true });
    if (typeof spec === "string") writeFileSync(at, spec);
    else if ("symlink" in spec) symlinkSync(spec.symlink, at);
    else if ("dir" in spec) mkdirSync(at, { recursive: true });
    else if ("hex" in spec) writeFileSync(at, Buffer.from(spec.hex, "hex"));
    else {
      writeFileSync(at, spec.text);
      if (spec.mode !== undefined) chmodSync(at, Number.parseInt(spec.mode, 8));
    }
  }
}

/** A small task: what its two scripts do, and whatever else it needs. Without an image it runs on any sandbox. */
export interface TaskSpec {
  /** Lines of solve.sh after the shebang; null leaves solution/ out. */
  solve?: string | null;
  /** Lines of test.sh after the shebang. */
  test?: string;
  /** Lines of task.toml after `[environment]`'s own keys, own tables included. */
  toml?: string;
  /** Keys of `[environment]`. */
  environment?: string;
  /** `docker_image`; null leaves it out. */
  image?: string | null;
  instruction?: string;
  files?: Files;
}

/** The image of tests on container engines: bash, coreutils and python3, made by tests/support/with-engines.sh. */
export const IMAGE = "gym-base:host";
/** An image that has busybox and nothing else: no bash. */
export const IMAGE_WITHOUT_BASH = "gym-base:busybox";

export function taskFiles(spec: TaskSpec): Files {
  const image = spec.image === undefined ? IMAGE : spec.image;
  return {
    "task.toml": [
      `schema_version = "1.4"`,
      "[environment]",
      image === null ? "" : `docker_image = "${image}"`,
      spec.environment ?? "",
      spec.toml ?? "",
      "",
    ].join("\n"),
    "instruction.md": spec.instruction ?? "Do it.\n",
    ...(spec.solve === null ? {} : { "solution/solve.sh": `#!/bin/bash\n${spec.solve ?? "true"}\n` }),
    "tests/test.sh": `#!/bin/bash\n${spec.test ?? "echo 1 > /logs/verifier/reward.txt"}\n`,
    ...spec.files,
  };
}

// deno-lint-ignore no-explicit-any -- rows are read as the program wrote them; each test says what it expects
export type Row = Record<string, any>;

/** A folder for one test, gone at its end (`using`). Short: unix sockets and overlay options have limits. */
export class TempFolder implements Disposable {
  readonly path: string;

  constructor(name = "t") {
    this.path = mkdtempSync(join(process.env.GYM_HARBOR_TEST_TMP ?? tmpdir(), `gh-${name}-`));
    chmodSync(this.path, process.env.GYM_HARBOR_TEST_UID === undefined ? 0o755 : 0o777);
  }

  join(...parts: string[]): string {
    return join(this.path, ...parts);
  }

  /** Writes a task folder below it and returns its path. */
  task(name: string, spec: TaskSpec): string {
    const folder = this.join(name);
    writeFiles(folder, taskFiles(spec));
    return folder;
  }

  [Symbol.dispose](): void {
    if (process.env.GYM_HARBOR_TEST_KEEP === undefined) rmSync(this.path, { recursive: true, force: true });
  }
}

/** What a run printed and left on disk. */
export interface RunFiles extends CliResult {
  rows: Row[];
  failures: Row[];
  /** Undefined when none was written. */
  summary: Row | undefined;
  /** Lines of the tab-separated table, without its header. */
  table: string[][];
  skipped: Record<string, string>;
}

/** `validate TARGET --output …` and everything it left. `output` names the rollouts file. */
export async function validate(
  target: string,
  output: string,
  args: readonly string[],
  options: CliOptions = {},
): Promise<RunFiles> {
  return runFiles(output, await runCli(["validate", target, "--output", output, ...args], options));
}

/** Reads the files of the run whose rollouts file is `output`. */
export function runFiles(output: string, result: CliResult): RunFiles {
  const stem = output.replace(/\.jsonl$/, "");
  return {
    ...result,
    rows: readRows(output),
    failures: readRows(`${stem}_failures.jsonl`),
    summary: readJson(`${stem}_run_summary.json`) as Row | undefined,
    table: result.stdout.split("\n").filter((line) => line.includes("\t") && !line.startsWith("task_id\t"))
      .map((line) => line.split("\t")),
    skipped: (readJson(join(dirname(output), "skipped.json")) ?? {}) as Record<string, string>,
  };
}

/** Every line of a JSONL file; an absent file has none. Throws on a line that is no whole object: rows are whole or absent. */
export function readRows(path: string): Row[] {
  if (!existsSync(path)) return [];
  const text = readFileSync(path, "utf8");
  if (text === "") return [];
  if (!text.endsWith("\n")) throw new Error(`${path}: the last line is cut off: ${text.slice(-80)}`);
  return text.slice(0, -1).split("\n").map((line, index) => {
    try {
      return JSON.parse(line) as Row;
    } catch {
      throw new Error(`${path}:${index + 1} is not JSON: ${line.slice(0, 80)}`);
    }
  });
}

function readJson(path: string): unknown {
  return existsSync(path) ? JSON.parse(readFileSync(path, "utf8")) : undefined;
}

/** The row of one task, or undefined. */
export function rowOf(rows: readonly Row[], task: string): Row | undefined {
  return rows.find((row) => row._ng_task_id?.task_id === task);
}
