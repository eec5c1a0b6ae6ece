/**
 * What an episode costs beside the engine calls that nobody can avoid: trivial oracle episodes through the compiled
 * file against a shell loop of the raw calls for the same tasks, in turns within one run.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { judged, median, type Row } from "./row.ts";

const TASKS = 6;
const ROUNDS = Number(process.env.GYM_HARBOR_BENCH_ROUNDS ?? 3);
const CONCURRENCIES = [1, 4];
const IMAGE = "gym-base:host";

/** As a person would script it: seven calls a task. `$E` the engine, `$1` the task's folder. */
const SEVEN_CALLS = `
name=gh-bench-$$-$(basename "$1")
$E run -d --init --network none --name "$name" ${IMAGE} sleep 600
tar -C "$1/solution" -cf - . | $E exec -i "$name" sh -c 'mkdir -p /solution /logs/verifier && tar -xf - -C /solution'
$E exec "$name" bash /solution/solve.sh
tar -C "$1/tests" -cf - . | $E exec -i "$name" sh -c 'mkdir -p /tests && tar -xf - -C /tests'
$E exec "$name" bash /tests/test.sh
test "$($E exec "$name" cat /logs/verifier/reward.txt)" = 1
$E rm -f $FAST -v "$name"
`;

/** The fewest that an engine's client allows: files and commands share their calls. */
const FOUR_CALLS = `
name=gh-bench-$$-$(basename "$1")
$E run -d --init --network none --name "$name" ${IMAGE} sh -c 'mkdir -p /solution /tests /logs/verifier; exec sleep 600'
tar -C "$1/solution" -cf - . | $E exec -i "$name" sh -c 'tar -xf - -C /solution && bash /solution/solve.sh'
test "$(tar -C "$1/tests" -cf - . | $E exec -i "$name" sh -c 'tar -xf - -C /tests && bash /tests/test.sh >&2 && cat /logs/verifier/reward.txt')" = 1
$E rm -f $FAST -v "$name"
`;

export function bench(binary: string): Promise<Row[]> {
  const folder = mkdtempSync(join(tmpdir(), "gh-bench-"));
  try {
    const dataset = join(folder, "trivial");
    const tasks = Array.from(
      { length: TASKS },
      (_, n) => makeTask(dataset, `task-${n}`),
    );
    return Promise.resolve(
      ["docker", "podman"].flatMap((engine) => benchEngine(binary, engine, folder, dataset, tasks)),
    );
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function benchEngine(
  binary: string,
  engine: string,
  folder: string,
  dataset: string,
  tasks: string[],
): Row[] {
  const there = spawnSync(engine, ["image", "inspect", IMAGE]);
  if (there.status !== 0) {
    return [
      judged({
        name: `engines: ${engine}`,
        value: NaN,
        unit: "s",
        note: `${engine} or its image ${IMAGE} is not there`,
      }),
    ];
  }
  return CONCURRENCIES.flatMap((concurrency) => {
    const seconds: Record<"ours" | "seven" | "four", number[]> = {
      ours: [],
      seven: [],
      four: [],
    };
    for (let round = -1; round < ROUNDS; round++) { // the first round warms caches
      const took = {
        seven: timed(() => shellLoop(SEVEN_CALLS, engine, tasks, concurrency)),
        ours: timed(() => validate(binary, engine, folder, dataset, concurrency)),
        four: timed(() => shellLoop(FOUR_CALLS, engine, tasks, concurrency)),
      };
      if (round < 0) continue;
      for (const way of ["ours", "seven", "four"] as const) {
        seconds[way].push(took[way]);
      }
    }
    const per = (way: "ours" | "seven" | "four") => median(seconds[way]) / TASKS;
    const ratio = (way: "seven" | "four") => median(seconds.ours.map((ours, round) => ours / seconds[way][round]!));
    const where = `${engine}, ${concurrency} at a time`;
    return [
      judged({
        name: `engines: an oracle episode, ${where}`,
        value: per("ours"),
        unit: "s",
      }),
      judged({
        name: `engines: seven raw calls, ${where}`,
        value: per("seven"),
        unit: "s",
      }),
      judged({
        name: `engines: against seven raw calls, ${where}`,
        value: ratio("seven"),
        unit: "×",
        limit: 1,
      }),
      judged({
        name: `engines: against the tightest four calls, ${where}`,
        value: ratio("four"),
        unit: "×",
      }),
    ];
  });
}

function timed(work: () => void): number {
  const began = performance.now();
  work();
  return (performance.now() - began) / 1000;
}

function validate(
  binary: string,
  engine: string,
  folder: string,
  dataset: string,
  concurrency: number,
): void {
  const output = join(folder, "results", `${crypto.randomUUID()}.jsonl`);
  const args = [
    "validate",
    dataset,
    "--sandbox",
    engine,
    "--concurrency",
    String(concurrency),
    "--output",
    output,
    "--quiet",
  ];
  const { status, stderr } = spawnSync(binary, args, {
    encoding: "utf8",
    cwd: folder,
  });
  if (status !== 0) {
    throw new Error(
      `validate on ${engine} ended with ${status}: ${stderr.slice(-2000)}`,
    );
  }
}

function shellLoop(
  calls: string,
  engine: string,
  tasks: string[],
  concurrency: number,
): void {
  const script = `set -e -o pipefail\n{ ${calls} } >/dev/null`;
  execFileSync("xargs", [
    "-P",
    String(concurrency),
    "-n",
    "1",
    "bash",
    "-c",
    script,
    "task",
  ], {
    input: tasks.join("\n"),
    env: { ...process.env, E: engine, FAST: engine === "podman" ? "-t 0" : "" },
    stdio: ["pipe", "ignore", "ignore"],
  });
}

function makeTask(dataset: string, id: string): string {
  const folder = join(dataset, id);
  for (const part of ["solution", "tests", "environment"]) {
    mkdirSync(join(folder, part), { recursive: true });
  }
  const files: Record<string, string> = {
    "task.toml":
      `version = "1.0"\n[metadata]\n[agent]\ntimeout_sec = 60\n[verifier]\ntimeout_sec = 60\n[environment]\ndocker_image = "${IMAGE}"\nallow_internet = false\n`,
    "instruction.md": "Write 42 to /answer.\n",
    "solution/solve.sh": "#!/bin/bash\necho 42 > /answer\n",
    "tests/test.sh":
      '#!/bin/bash\n[ "$(cat /answer)" = 42 ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt\n',
  };
  for (const [path, text] of Object.entries(files)) {
    writeFileSync(join(folder, path), text);
  }
  for (const path of ["solution/solve.sh", "tests/test.sh"]) {
    chmodSync(join(folder, path), 0o755);
  }
  return folder;
}
