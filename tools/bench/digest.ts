/**
 * `digest` of a task with many small files, and of one with a few large ones against plain SHA-256 of the same bytes by
 * one thread of the same runtime. The two take turns, so that a busy moment of the machine hits them alike; both are
 * measured as a user meets them, start included.
 */
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { measure } from "./_measure.ts";
import { BenchFolder, writeFiller, writeTask } from "./_tasks.ts";
import { judged, median, type Row } from "./row.ts";

const RUNS = 5;
const SMALL = { files: 20_000, bytes: 2_000 };
const LARGE = { files: 8, bytes: 128 * 1024 * 1024 };

const bun = join(import.meta.dirname!, "..", "node_modules", ".bin", "bun");

/** Reads as we do: 1 MiB at a time into one buffer. */
const PLAIN = `
import { createHash } from "node:crypto";
import { closeSync, openSync, readFileSync, readSync } from "node:fs";
const sum = createHash("sha256");
const buffer = Buffer.allocUnsafeSlow(1 << 20);
for (const path of readFileSync(process.argv[2], "utf8").split("\\n")) {
  const file = openSync(path, "r");
  for (let got; (got = readSync(file, buffer, 0, buffer.length, null)) > 0;) sum.update(buffer.subarray(0, got));
  closeSync(file);
}
console.log(sum.digest("hex"));
`;

export async function bench(binary: string): Promise<Row[]> {
  return [...await small(binary), ...await large(binary)];
}

async function small(binary: string): Promise<Row[]> {
  using temp = new BenchFolder();
  writeTask(join(temp.path, "task"), "small");
  writeFiller(join(temp.path, "task/environment/data"), SMALL.files, SMALL.bytes);
  const [ms] = await alternating(temp.path, [[binary, "digest", "task", "--json"]]);
  return [judged({ name: `digest: ${SMALL.files} files of ${SMALL.bytes} bytes`, value: ms!, unit: "ms", limit: 500 })];
}

async function large(binary: string): Promise<Row[]> {
  using temp = new BenchFolder();
  const rows: Row[] = [];
  for (const place of ["environment", "tests"]) {
    const task = join(temp.path, `in-${place}`);
    writeTask(task, place);
    const paths = writeFiller(join(task, place, "data"), LARGE.files, LARGE.bytes);
    const list = join(temp.path, "list");
    writeFileSync(list, paths.join("\n"));
    writeFileSync(join(temp.path, "plain.ts"), PLAIN);
    execFileSync(bun, ["build", "--compile", "plain.ts", "--outfile", "plain"], { cwd: temp.path, stdio: "ignore" });
    const plain = [join(temp.path, "plain"), list];
    const [ours, theirs] = await alternating(temp.path, [[binary, "digest", task, "--json"], plain]);
    const gib = LARGE.files * LARGE.bytes / 2 ** 30;
    const name = `digest: ${gib} GiB in ${place}/`;
    rows.push(
      judged({ name, value: ours!, unit: "ms" }),
      judged({
        name: `${name}, speed against one thread of SHA-256`,
        value: theirs! / ours!,
        unit: "×",
        limit: 0.9,
        better: "higher",
        note: `plain ${theirs!.toFixed(0)} ms`,
      }),
    );
  }
  return rows;
}

/** Median wall time of each program, in milliseconds. */
async function alternating(cwd: string, argvs: string[][]): Promise<number[]> {
  const times: number[][] = argvs.map(() => []);
  for (let run = -1; run < RUNS; run++) {
    for (const [index, argv] of argvs.entries()) {
      const { ms } = await measure(argv, { cwd, env: process.env });
      if (run >= 0) times[index]!.push(ms);
    }
  }
  return times.map(median);
}
