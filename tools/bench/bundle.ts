/**
 * `bundle export` of a dataset whose images lie in our own store, against `cp -r` and SHA-256 of the same bytes (decided
 * per run, alternating). Our sums are of the bytes on their way, so the data is read once and written once.
 */
import { createHash } from "node:crypto";
import { createReadStream, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { MEDIA } from "../../lib/registry/registry.ts";
import { systemClock } from "../../lib/runtime/clock.ts";
import { type LayoutStore, openStore } from "../../lib/store/layout.ts";
import { measure } from "./_measure.ts";
import { BenchFolder, writeFiller, writeTask } from "./_tasks.ts";
import { judged, median, type Row } from "./row.ts";

const TASKS = 200;
const LAYERS = 6;
const LAYER_BYTES = 100 << 20;
const RUNS = 5;
/** What writeTask() names. */
const IMAGE = "debian:bookworm-slim";

export async function bench(binary: string): Promise<Row[]> {
  using temp = new BenchFolder();
  for (let index = 0; index < TASKS; index++) writeTask(join(temp.path, "set", `task-${index}`), `task-${index}`);
  await fillStore(openStore(join(temp.path, "store"), { clock: systemClock }), temp.path);
  const argv = [binary, "bundle", "export", "set", "--image-store", "store", "--offline", "--sandbox", "namespace"];
  const ours: number[] = [];
  const theirs: number[] = [];
  for (let run = -1; run < RUNS; run++) {
    const exported = await measure([...argv, "--out", "out", "--quiet"], { cwd: temp.path });
    const script = "mkdir copy && cp -r set copy/set && cp -r store/blobs copy/blobs && cd copy && " +
      "find . -type f -print0 | xargs -0 sha256sum > ../sums";
    const copied = await measure(["sh", "-c", script], { cwd: temp.path });
    if (run >= 0) {
      ours.push(exported.ms);
      theirs.push(copied.ms);
    }
    for (const name of ["out", "copy"]) rmSync(join(temp.path, name), { recursive: true });
  }
  const mb = LAYERS * LAYER_BYTES / 1e6;
  const [export_, copy] = [median(ours), median(theirs)];
  return [
    judged({ name: `bundle export: ${TASKS} tasks, ${mb.toFixed(0)} MB of images`, value: export_, unit: "ms" }),
    judged({
      name: "bundle export: speed against cp -r and sha256sum",
      value: copy / export_,
      unit: "×",
      limit: 0.7,
      better: "higher",
      note: `cp -r and sha256sum ${copy.toFixed(0)} ms`,
    }),
  ];
}

async function fillStore(store: LayoutStore, folder: string): Promise<void> {
  const paths = writeFiller(join(folder, "filler"), LAYERS, LAYER_BYTES);
  const layers = [];
  for (const path of paths) {
    const hash = createHash("sha256");
    for await (const chunk of createReadStream(path)) hash.update(chunk);
    const layer = { mediaType: "application/vnd.oci.image.layer.v1.tar", digest: `sha256:${hash.digest("hex")}` };
    layers.push({ ...layer, size: statSync(path).size });
    await take(store, layers.at(-1)!, (offset) => createReadStream(path, { start: offset }));
  }
  rmSync(join(folder, "filler"), { recursive: true });
  const config = json({
    os: "linux",
    architecture: "amd64",
    config: {},
    rootfs: { type: "layers", diff_ids: layers.map(({ digest }) => digest) },
  });
  const configBlob = { mediaType: MEDIA.ociConfig, digest: digestOf(config), size: config.length };
  await take(store, configBlob, (offset) => [config.subarray(offset)]);
  const manifestBytes = json({ schemaVersion: 2, mediaType: MEDIA.ociManifest, config: configBlob, layers });
  const manifest = { mediaType: MEDIA.ociManifest, digest: digestOf(manifestBytes), size: manifestBytes.length };
  await store.add({ manifest, manifestBytes }, [IMAGE]);
}

const json = (value: unknown): Uint8Array => new TextEncoder().encode(JSON.stringify(value));
const digestOf = (bytes: Uint8Array): string => `sha256:${createHash("sha256").update(bytes).digest("hex")}`;

const take = (
  store: LayoutStore,
  blob: { mediaType: string; digest: string; size: number },
  bytes: (offset: number) => Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
): Promise<void> =>
  store.take(blob, (offset) =>
    Promise.resolve((async function* () {
      yield* bytes(offset);
    })()), new AbortController().signal);
