/** `check` of many small tasks: how many a second, in how much memory. */
import { join } from "node:path";
import { measure } from "./_measure.ts";
import { BenchFolder, writeTask } from "./_tasks.ts";
import { judged, median, type Row } from "./row.ts";

const TASKS = 10_000;
const RUNS = 3;

export async function bench(binary: string): Promise<Row[]> {
  using temp = new BenchFolder();
  for (let index = 0; index < TASKS; index++) {
    const name = `task-${String(index).padStart(5, "0")}`;
    writeTask(join(temp.path, "set", name), name);
  }
  const speeds: number[] = [];
  let maxMb = 0;
  for (let run = -1; run < RUNS; run++) { // the first round warms the page cache
    const measured = await measure([binary, "check", "set", "--json"], { cwd: temp.path });
    const lines = measured.stdout.split("\n").filter((line) => line.includes('"ok":true')).length;
    if (lines !== TASKS) throw new Error(`check said ok to ${lines} of ${TASKS} tasks`);
    maxMb = Math.max(maxMb, measured.maxMb);
    if (run >= 0) speeds.push(TASKS / (measured.ms / 1000));
  }
  return [
    judged({ name: `check: ${TASKS} tasks`, value: median(speeds), unit: "tasks/s", limit: 4000, better: "higher" }),
    judged({ name: `check: ${TASKS} tasks, highest resident memory`, value: maxMb, unit: "MB", limit: 200 }),
  ];
}
