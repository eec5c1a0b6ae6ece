/** How long the file takes to start, beside an empty Bun binary that is built for the comparison. */
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { judged, median, type Row } from "./row.ts";

const RUNS = 41;
const bun = join(import.meta.dirname!, "..", "node_modules", ".bin", "bun");

export function bench(binary: string): Promise<Row[]> {
  const folder = mkdtempSync(join(tmpdir(), "gym-harbor-bench-"));
  try {
    writeFileSync(join(folder, "empty.ts"), "");
    const empty = join(folder, "empty");
    execFileSync(bun, ["build", "--compile", "empty.ts", "--outfile", empty], {
      cwd: folder,
      stdio: "ignore",
    });
    // The programs take turns, so that a busy moment of the machine hits them alike.
    const [floor, version, help] = alternating(RUNS, [[empty], [binary, "--version"], [binary, "-h"]]);
    const ratios = version!.map((ms, round) => ms / floor![round]!);
    return Promise.resolve([
      judged({ name: "start: an empty Bun binary", value: median(floor!), unit: "ms" }),
      judged({ name: "start: --version", value: median(version!), unit: "ms", limit: 60 }),
      judged({ name: "start: --version against an empty binary", value: median(ratios), unit: "×", limit: 2.5 }),
      judged({ name: "start: -h", value: median(help!), unit: "ms", limit: 90 }),
    ]);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Wall times of each program, round by round, in milliseconds. */
function alternating(runs: number, argvs: string[][]): number[][] {
  const times: number[][] = argvs.map(() => []);
  for (let run = -1; run < runs; run++) { // the first round warms the page cache
    for (const [index, [program, ...args]] of argvs.entries()) {
      const began = performance.now();
      const { status } = spawnSync(program!, args, {
        stdio: ["ignore", "pipe", "pipe"],
      });
      if (status !== 0) {
        throw new Error(`${[program, ...args].join(" ")} ended with ${status}`);
      }
      if (run >= 0) times[index]!.push(performance.now() - began);
    }
  }
  return times;
}
