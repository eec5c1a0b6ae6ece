/**
 * Whole oracle episodes on an image's layers without an engine: wall time of `validate --sandbox namespace` over trivial
 * tasks on an image of 150 to 200 MB, start of the program included, as root and as a plain user, how many a second two
 * at a time, and against podman on the same image in the same run. The image is unpacked before anything is measured.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { chmodSync, copyFileSync, mkdirSync, statSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { systemClock } from "../../lib/runtime/clock.ts";
import { systemRunner } from "../../lib/runtime/runner.ts";
import { openStore } from "../../lib/store/layout.ts";
import { importRootfsArchive } from "../../lib/store/rootfs.ts";
import { rootfsTar } from "../../tests/support/rootfs.ts";
import { measure } from "./_measure.ts";
import { BenchFolder, writeFiller, writeTask } from "./_tasks.ts";
import { judged, median, type Row } from "./row.ts";

const TASKS = 100;
/** podman takes a second for each. */
const PODMAN_TASKS = 6;
const ROUNDS = Number(process.env.GYM_HARBOR_BENCH_ROUNDS ?? 3);
const IMAGE = "localhost/gym-harbor-bench:layers";
/** A plain user that every system has, by number: `nobody` of most. */
const PLAIN = 65534;
const FILLER = { count: 2000, bytes: 50_000 };

export async function bench(binary: string): Promise<Row[]> {
  if (process.getuid?.() !== 0) {
    return [
      judged({ name: "namespace: an oracle episode", value: NaN, unit: "ms", note: "needs root to make its image" }),
    ];
  }
  using folder = new BenchFolder();
  chmodSync(folder.path, 0o755);
  const archive = await makeImage(folder.path);
  const all = join(folder.path, "all");
  const few = join(folder.path, "few");
  for (let n = 0; n < TASKS; n++) writeTask(join(all, `task-${n}`), `task-${n}`, IMAGE);
  for (let n = 0; n < PODMAN_TASKS; n++) writeTask(join(few, `task-${n}`), `task-${n}`, IMAGE);
  const program = join(folder.path, "gym-harbor");
  copyFileSync(binary, program);
  chmodSync(program, 0o755);

  const run = (dataset: string, sandbox: string, concurrency: number, plain = false) =>
    validate({ program, dataset, folder: folder.path, sandbox, concurrency, plain });
  const hasPodman = podmanHas(archive);
  const taken: Record<"root" | "plain" | "two" | "podman", number[]> = { root: [], plain: [], two: [], podman: [] };
  for (let round = -1; round < ROUNDS; round++) { // the first round unpacks and warms caches
    const one = {
      root: await run(all, "namespace", 1) / TASKS,
      podman: hasPodman ? await run(few, "podman", 1) / PODMAN_TASKS : NaN,
      plain: await run(all, "namespace", 1, true) / TASKS,
      two: await run(all, "namespace", 2) / TASKS,
    };
    if (round < 0) continue;
    for (const name of ["root", "podman", "plain", "two"] as const) taken[name].push(one[name]);
  }
  if (hasPodman) spawnSync("podman", ["rmi", "-f", IMAGE]);
  const against = median(taken.root.map((ours, round) => taken.podman[round]! / ours));
  const size = `${TASKS} tasks, image of ${Math.round(statSync(archive).size / 1e6)} MB`;
  return [
    judged({
      name: "namespace: an oracle episode as root, 1 at a time",
      value: median(taken.root),
      unit: "ms",
      limit: 90,
      note: size,
    }),
    judged({
      name: "namespace: an oracle episode as a plain user, 1 at a time",
      value: median(taken.plain),
      unit: "ms",
      limit: 130,
    }),
    judged({
      name: "namespace: oracle episodes as root, 2 at a time",
      value: 1000 / median(taken.two),
      unit: "1/s",
      limit: 20,
      better: "higher",
    }),
    judged({
      name: "namespace: episodes in the time of one by podman, 1 at a time",
      value: against,
      unit: "×",
      ...(hasPodman ? { limit: 8, better: "higher" as const } : { note: "podman is not there" }),
    }),
  ];
}

/** Programs of this machine and files that nothing shares, as a store for everybody and a plain archive. */
async function makeImage(folder: string): Promise<string> {
  const root = join(folder, "rootfs");
  mkdirSync(root);
  execFileSync("tar", ["-xpf", rootfsTar("host"), "-C", root]);
  writeFiller(join(root, "opt/filler"), FILLER.count, FILLER.bytes);
  const archive = join(folder, "rootfs.tar");
  execFileSync("tar", ["-C", root, "--sort=name", "--numeric-owner", "-cf", archive, "."]);
  const store = openStore(join(folder, "store"), { clock: systemClock });
  const options = { names: [IMAGE], platform: "linux/amd64", runner: systemRunner() };
  await importRootfsArchive(archive, store, options, AbortSignal.timeout(120_000));
  execFileSync("chmod", ["-R", "a+rX", store.folder]);
  return archive;
}

function podmanHas(archive: string): boolean {
  return spawnSync("podman", ["import", "-q", archive, IMAGE], { stdio: "ignore" }).status === 0;
}

interface Run {
  program: string;
  dataset: string;
  folder: string;
  sandbox: string;
  concurrency: number;
  plain: boolean;
}

let runs = 0;

/** Milliseconds of one run with results of its own; throws when any task does not score 1. */
async function validate({ program, dataset, folder, sandbox, concurrency, plain }: Run): Promise<number> {
  const own = join(folder, `run-${++runs}`);
  const trees = join(folder, plain ? "trees-plain" : "trees");
  for (const path of [own, trees]) mkdirSync(path, { recursive: true });
  if (plain) { for (const path of [own, trees]) execFileSync("chown", [String(PLAIN), path]); }
  const before = plain ? ["setpriv", "--reuid", String(PLAIN), "--regid", String(PLAIN), "--clear-groups"] : [];
  const options = [
    "--sandbox",
    sandbox,
    "--image-store",
    join(folder, "store"),
    "--unpack-dir",
    join(trees, "t"),
    "--concurrency",
    String(concurrency),
    "--output",
    join(own, "rollouts.jsonl"),
    "--quiet",
  ];
  const { PATH, CONTAINERS_CONF, CONTAINERS_STORAGE_CONF } = process.env;
  const engine = sandbox === "podman" ? { CONTAINERS_CONF, CONTAINERS_STORAGE_CONF } : {};
  const { ms } = await measure([...before, program, "validate", dataset, ...options], {
    cwd: own,
    env: { PATH, TMPDIR: own, HOME: own, ...engine } as NodeJS.ProcessEnv,
  });
  return ms;
}
