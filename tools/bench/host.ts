/**
 * Whole oracle episodes in the sandbox that needs no engine: wall time of `validate --sandbox host` over trivial tasks,
 * start of the program included, as root and as a plain user; how many a second at two at a time; and the memory of the
 * program while a thousand wait for their turn.
 */
import { spawnSync } from "node:child_process";
import { chmodSync, copyFileSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { measure, type Measured } from "./_measure.ts";
import { BenchFolder, writeTask } from "./_tasks.ts";
import { judged, median, type Row } from "./row.ts";

const TASKS = 40;
const ROUNDS = Number(process.env.GYM_HARBOR_BENCH_ROUNDS ?? 3);
const QUEUED = 1000;
/** A plain user that every system has, by number: `nobody` of most. */
const PLAIN = 65534;

export async function bench(binary: string): Promise<Row[]> {
  const diagnosis = spawnSync(binary, ["doctor", "--json"], { encoding: "utf8" }).stdout;
  if (!usable(diagnosis)) {
    return [
      judged({
        name: "host: an oracle episode",
        value: NaN,
        unit: "ms",
        note: "this machine cannot make the sandbox",
      }),
    ];
  }
  using folder = new BenchFolder();
  const few = join(folder.path, "few");
  const many = join(folder.path, "many");
  for (let n = 0; n < TASKS; n++) {
    writeTask(join(few, `task-${n}`), `task-${n}`);
  }
  for (let n = 0; n < QUEUED; n++) {
    writeTask(join(many, `task-${n}`), `task-${n}`);
  }
  const isRoot = process.getuid?.() === 0;
  const root = isRoot ? await times(() => validate(binary, few, folder, 1)) : undefined;
  const plain = await times(() => validate(binary, few, folder, 1, isRoot));
  const two = await times(() => validate(binary, few, folder, 2));
  const queue = await validate(binary, many, folder, 2);
  const each = (
    ms: number | undefined,
  ) => (ms === undefined ? NaN : ms / TASKS);
  return [
    judged({
      name: "host: an oracle episode as root, 1 at a time",
      value: each(root),
      unit: "ms",
      ...(root === undefined ? { note: "needs root" } : { limit: 90 }),
    }),
    judged({
      name: "host: an oracle episode as a plain user, 1 at a time",
      value: each(plain),
      unit: "ms",
      limit: 130,
    }),
    judged({
      name: `host: oracle episodes${isRoot ? " as root" : ""}, 2 at a time`,
      value: TASKS / (two / 1000),
      unit: "1/s",
      limit: 20,
      better: "higher",
    }),
    judged({
      name: `host: oracle episodes of a long run, 2 at a time`,
      value: QUEUED / (queue.ms / 1000),
      unit: "1/s",
      note: `${QUEUED} tasks`,
    }),
    judged({
      name: `host: memory with ${QUEUED} episodes queued`,
      value: queue.maxMb,
      unit: "MB",
      limit: 250,
    }),
  ];
}

async function times(one: () => Promise<Measured>): Promise<number> {
  const taken: number[] = [];
  for (let round = -1; round < ROUNDS; round++) { // the first round warms caches
    const { ms } = await one();
    if (round >= 0) taken.push(ms);
  }
  return median(taken);
}

let runs = 0;

/** One run with results of its own; throws when any task does not score 1. */
async function validate(
  binary: string,
  dataset: string,
  folder: BenchFolder,
  concurrency: number,
  asPlainUser = false,
): Promise<Measured> {
  const own = join(folder.path, `run-${++runs}`);
  mkdirSync(own);
  let program = binary;
  let before: string[] = [];
  if (asPlainUser) {
    program = join(folder.path, "gym-harbor");
    if (runs > 0) copyFileSync(binary, program);
    chmodSync(program, 0o755);
    chmodSync(folder.path, 0o755);
    chmodSync(own, 0o777);
    before = [
      "setpriv",
      "--reuid",
      String(PLAIN),
      "--regid",
      String(PLAIN),
      "--clear-groups",
    ];
  }
  const output = join(own, "rollouts.jsonl");
  const options = [
    "--sandbox",
    "host",
    "--concurrency",
    String(concurrency),
    "--output",
    output,
    "--quiet",
  ];
  return await measure([...before, program, "validate", dataset, ...options], {
    cwd: own,
    env: { PATH: process.env.PATH, TMPDIR: own, HOME: own },
  });
}

function usable(doctor: string): boolean {
  try {
    const found = JSON.parse(doctor) as {
      sandboxes: { name: string; usable: boolean }[];
    };
    return found.sandboxes.some((one) => one.name === "host" && one.usable);
  } catch {
    return false;
  }
}
