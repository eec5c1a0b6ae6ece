/** `dataset prepare` where everything is recorded: nothing is asked of a registry or an engine. */
import { chmodSync, existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { contextHash, inputsDigest } from "../../lib/digest/context.ts";
import { measure } from "./_measure.ts";
import { BenchFolder, writeTask } from "./_tasks.ts";
import { judged, median, type Row } from "./row.ts";

const TASKS = 1000;
const BASES = 20;
const CONTEXTS = 40;
const RUNS = 3;

export async function bench(binary: string): Promise<Row[]> {
  using temp = new BenchFolder();
  writeDataset(join(temp.path, "set"));
  const asked = join(temp.path, "asked");
  const env = { ...process.env, ...nobody(temp.path, asked) };
  const times: number[] = [];
  for (let run = -1; run < RUNS; run++) { // the first round warms the page cache
    const { ms, stdout } = await measure([binary, "dataset", "prepare", "set", "--json"], { cwd: temp.path, env });
    const images = stdout.trim().split("\n").map((line) => JSON.parse(line) as { how: string });
    const isNew = images.find(({ how }) => how !== "recorded" && how !== "built before");
    if (images.length !== BASES + CONTEXTS || isNew !== undefined) throw new Error(`prepare did work: ${stdout}`);
    if (existsSync(asked)) throw new Error("prepare called an engine");
    if (run >= 0) times.push(ms / 1000);
  }
  return [
    judged({ name: `prepare: ${TASKS} tasks whose images are recorded`, value: median(times), unit: "s", limit: 3 }),
  ];
}

/** Engines that tell on whoever calls them, and no way to any registry. */
function nobody(folder: string, asked: string): Record<string, string> {
  const programs = join(folder, "bin");
  mkdirSync(programs);
  for (const name of ["docker", "podman", "buildah"]) {
    writeFileSync(join(programs, name), `#!/bin/sh\necho "$0 $*" >> '${asked}'\nexit 125\n`);
    chmodSync(join(programs, name), 0o755);
  }
  const nowhere = "http://127.0.0.1:9";
  return { PATH: `${programs}:${process.env.PATH}`, HTTPS_PROXY: nowhere, HTTP_PROXY: nowhere, NO_PROXY: "" };
}

/** Half of the tasks set and run on one of the bases, half are built from one of the contexts, and all is recorded. */
function writeDataset(folder: string): void {
  const records: Record<string, object> = {};
  const built: Record<string, object> = {};
  for (let index = 0; index < TASKS; index++) {
    const name = `task-${String(index).padStart(4, "0")}`;
    const environment = join(folder, name, "environment");
    writeTask(join(folder, name), name);
    writeFileSync(join(folder, name, "task.toml"), `[task]\nname = "bench/${name}"\n`);
    if (index % 2 === 0) {
      const base = `debian:${(index / 2) % BASES}`;
      writeFileSync(join(environment, "Dockerfile"), `FROM ${base}\nENV A=1\nRUN echo $A > /mark\nWORKDIR /app\n`);
      records[base] = record(`library/debian@sha256:${digits(index)}`);
    } else {
      writeFileSync(join(environment, "data"), String((index - 1) / 2 % CONTEXTS).repeat(1000));
      writeFileSync(join(environment, "Dockerfile"), "FROM debian:12\nCOPY data /data\n");
      const hash = contextHash(environment);
      const image = `registry.local/bench/hb__${hash}@sha256:${digits(index)}`;
      const settings = { platform: "linux/amd64", dockerfile: "Dockerfile", service: "main" };
      records[`registry.local/bench/hb__${hash}`] ??= {
        ...record(image),
        inputs_digest: inputsDigest(environment, settings),
      };
      built[hash] ??= { services: { main: image }, tool: "docker", pushed: true, platform: "linux/amd64" };
    }
  }
  writeFileSync(join(folder, "compose-images.json"), JSON.stringify(records));
  writeFileSync(join(folder, "built-images.json"), JSON.stringify(built));
}

const digits = (index: number): string => String(index).padStart(64, "0");
const record = (image: string): object => ({
  image,
  os: "linux",
  architecture: "amd64",
  config: { Env: ["PATH=/bin"], WorkingDir: "/" },
});
