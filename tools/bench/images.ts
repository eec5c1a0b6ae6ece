/**
 * An image from a registry of this machine to folders that a sandbox can start from, against `podman pull`: both on one
 * fresh file system, in turns, from nothing each time. Then an image that shares its layers, and a layer of many files.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { systemClock } from "../../lib/runtime/clock.ts";
import { systemRunner } from "../../lib/runtime/runner.ts";
import { openRegistry } from "../../lib/registry/mod.ts";
import { pushImage } from "../../lib/images/push.ts";
import { gzipSync } from "node:zlib";
import { makeImage, never, putImage, sha256, testStore } from "../../tests/support/images.ts";
import { registrySkip, startRegistry } from "../../tests/support/real_registry.ts";
import { type Line, tar } from "../../tests/support/tar.ts";
import { judged, median, type Row } from "./row.ts";

const ROUNDS = Number(process.env.GYM_HARBOR_BENCH_ROUNDS ?? 5);
const IMAGE_BYTES = 180e6;
const SMALL_FILES = 100_000;

export async function bench(binary: string): Promise<Row[]> {
  const lacks = process.getuid?.() !== 0 ? "needs root for a file system of its own" : registrySkip() ??
    (spawnSync("podman", ["version"]).status === 0 ? undefined : "podman is not there");
  if (lacks !== undefined) {
    return [judged({ name: "images", value: NaN, unit: "×", note: lacks })];
  }
  const folder = mkdtempSync(join(tmpdir(), "gh-bench-"));
  const disk = join(folder, "disk");
  try {
    mountFresh(folder, disk);
    await using registry = await startRegistry(join(folder, "registry"));
    const { bytes, files } = await publish(folder, registry.host);
    return [
      ...benchPull(
        binary,
        disk,
        registry.host,
        `${(bytes / 1e6).toFixed(0)} MB, ${files} files`,
      ),
      ...benchSmallFiles(binary, folder, disk),
    ];
  } finally {
    spawnSync("umount", [disk]);
    rmSync(folder, { recursive: true, force: true });
  }
}

function mountFresh(folder: string, disk: string): void {
  mkdirSync(disk);
  execFileSync("truncate", ["-s", "4G", join(folder, "disk.img")]);
  execFileSync("mkfs.ext4", ["-q", "-F", join(folder, "disk.img")], {
    stdio: "pipe",
  });
  execFileSync("mount", ["-o", "loop", join(folder, "disk.img"), disk]);
}

/** Programs and libraries of this machine as `bench/big:1`, and with one more small layer as `bench/big:2`. */
async function publish(
  folder: string,
  host: string,
): Promise<{ bytes: number; files: number }> {
  const layer = join(folder, "layer.tar");
  const list = `find /usr/bin /usr/lib /usr/share -xdev -type f -size -400k -printf '%s %p\\n' | sort -k2 |` +
    ` awk '{ sum += $1; if (sum > ${IMAGE_BYTES}) exit; sub(/^[0-9]+ /, ""); print }'`;
  execFileSync("sh", [
    "-c",
    `${list} > "$1/list" && tar -C / -cf "$1/layer.tar" --numeric-owner -T "$1/list"`,
    "sh",
    folder,
  ], { stdio: "pipe" });
  const base = new Uint8Array(readFileSync(layer));
  const files = readFileSync(join(folder, "list"), "utf8").trim().split("\n").length;
  const store = testStore(join(folder, "source"));
  const registry = openRegistry({
    runner: systemRunner(),
    clock: systemClock,
    env: {},
    emit: () => {},
  });
  const layers: Uint8Array[] = [base];
  for (const tag of ["1", "2"]) {
    const image = await putImage(store, makeImage(layers), [`bench:${tag}`]);
    await pushImage(
      image,
      `${host}/bench/big:${tag}`,
      { registry, store },
      never,
      () => {},
    );
    layers.push(tar(["file", "one-more", "x"]));
  }
  rmSync(layer);
  return { bytes: base.length, files };
}

function benchPull(
  binary: string,
  disk: string,
  host: string,
  what: string,
): Row[] {
  const reference = `${host}/bench/big`;
  const ours = (tag: string, ...more: string[]) => [
    binary,
    "images",
    "pull",
    `${reference}:${tag}`,
    "--unpack",
    "--image-store",
    join(disk, "images"),
    "--unpack-dir",
    join(disk, "trees"),
    ...more,
  ];
  const podman = [
    "podman",
    "--root",
    join(disk, "podman"),
    "--runroot",
    join(disk, "podman-run"),
    "pull",
    "-q",
    "--tls-verify=false",
    `${reference}:1`,
  ];
  const seconds = { ours: [] as number[], podman: [] as number[] };
  let sharedBlobs = NaN;
  for (let round = -1; round < ROUNDS; round++) { // the first round warms caches
    for (const way of ["ours", "podman"] as const) {
      for (const name of ["images", "trees"]) {
        rmSync(join(disk, name), { recursive: true, force: true });
      }
      clearPodman(disk);
      execFileSync("sync", ["-f", disk]);
      const took = timed(way === "ours" ? ours("1") : podman);
      if (round >= 0) seconds[way].push(took);
      if (round === ROUNDS - 1 && way === "ours") {
        // Its own two blobs of some hundred bytes must come, the shared one must not.
        const asked = run(ours("2", "--verbose")).stderr.split("\n").filter((
          line,
        ) => line.includes("/blobs/"));
        sharedBlobs = asked.length;
      }
    }
  }
  const ratio = median(
    seconds.ours.map((took, round) => took / seconds.podman[round]!),
  );
  return [
    judged({
      name: `images: pull and unpack ${what}`,
      value: median(seconds.ours),
      unit: "s",
    }),
    judged({
      name: "images: podman pull of the same",
      value: median(seconds.podman),
      unit: "s",
    }),
    judged({
      name: "images: pull and unpack against podman pull",
      value: ratio,
      unit: "×",
      limit: 0.7,
    }),
    judged({
      name: "images: blobs asked for of an image that shares its base",
      value: sharedBlobs,
      unit: "blobs",
      limit: 2,
      note: "its configuration and its own layer",
    }),
  ];
}

/** podman mounts its own graph root. */
function clearPodman(disk: string): void {
  spawnSync("umount", [join(disk, "podman", "overlay")]);
  for (const name of ["podman", "podman-run"]) {
    rmSync(join(disk, name), { recursive: true, force: true });
  }
}

function benchSmallFiles(binary: string, folder: string, disk: string): Row[] {
  const lines = Array.from({ length: SMALL_FILES }, (_, index): Line => [
    "file",
    `many/${String(index % 300).padStart(3, "0")}/file-${index}`,
    `content of file ${index}\n`,
    { mtime: 1_700_000_000 },
  ]);
  const archive = tar(...lines);
  const path = join(folder, "many.tar.gz");
  const bytes = new Uint8Array(gzipSync(archive, { level: 1 }));
  writeFileSync(path, bytes);
  const layer = {
    path,
    digest: sha256(bytes),
    diffId: sha256(archive),
    size: statSync(path).size,
    readOnly: true,
  };
  const seconds = { ours: [] as number[], tar: [] as number[] };
  for (let round = -1; round < ROUNDS; round++) {
    for (const way of ["ours", "tar"] as const) {
      const root = join(disk, "many");
      rmSync(root, { recursive: true, force: true });
      mkdirSync(root);
      execFileSync("sync", ["-f", disk]);
      const request = {
        root,
        owners: "shift:0",
        layers: [layer],
        flat: false,
        below: [],
      };
      const took = way === "ours"
        ? timed([binary, "unpack-layer"], JSON.stringify(request))
        : timed(["tar", "-xpzf", path, "-C", root]);
      if (!existsSync(join(root, "many/000/file-0"))) {
        throw new Error(`${way} unpacked nothing`);
      }
      if (round >= 0) seconds[way].push(took);
    }
  }
  const ratio = median(
    seconds.ours.map((took, round) => took / seconds.tar[round]!),
  );
  return [
    judged({
      name: `images: a layer of ${SMALL_FILES} small files, unpacked`,
      value: median(seconds.ours),
      unit: "s",
    }),
    judged({
      name: "images: tar -xpzf of the same",
      value: median(seconds.tar),
      unit: "s",
    }),
    judged({
      name: "images: many small files against tar",
      value: ratio,
      unit: "×",
      limit: 1.5,
    }),
  ];
}

function run(argv: string[], input?: string): { stderr: string } {
  const { status, stderr } = spawnSync(argv[0]!, argv.slice(1), {
    input,
    encoding: "utf8",
    maxBuffer: 1 << 28,
  });
  if (status !== 0) {
    throw new Error(
      `${argv.join(" ")} ended with ${status}: ${stderr.slice(-500)}`,
    );
  }
  return { stderr };
}

function timed(argv: string[], input?: string): number {
  const began = performance.now();
  run(argv, input);
  return (performance.now() - began) / 1000;
}
