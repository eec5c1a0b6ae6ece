/** Bundles made from small datasets and hand-made images: no engine, no registry. */
import { join } from "node:path";
import { exportBundle, type ExportDeps } from "../../lib/bundle/export.ts";
import type { ImageSources, WantedImage } from "../../lib/bundle/images.ts";
import type { ExportRequest } from "../../lib/bundle/request.ts";
import type { Bundle } from "../../lib/bundle/schema.ts";
import { verifyBundle } from "../../lib/bundle/verify.ts";
import { readInput } from "../../lib/dataset/input.ts";
import { systemClock } from "../../lib/runtime/clock.ts";
import { openStore } from "../../lib/store/layout.ts";
import { resolveTarget } from "../../lib/target/resolve.ts";
import { bytesOf, makeImage, never, putImage, testStore } from "./images.ts";
import { TempFolder } from "./tasks.ts";

export const PIN = `library/debian@sha256:${"1".repeat(64)}`;
export const BUILT = "hb__0123456789abcdef0123456789abcdef";

/** Two images that share a layer. */
export const BASE = makeImage([bytesOf("shared layer"), bytesOf("base layer")], { config: { Env: ["A=1"] } });
export const OTHER = makeImage([bytesOf("shared layer"), bytesOf("other layer")]);

/** A dataset of three tasks and a store with their images. */
export class BundleWork implements Disposable {
  readonly temp = new TempFolder("bundle");
  readonly data = this.temp.join("words");
  readonly store = testStore(this.temp.join("store"));
  readonly notes: string[] = [];

  static async make(): Promise<BundleWork> {
    const work = new BundleWork();
    const { temp } = work;
    temp.task("words/alpha", {
      image: "debian:12",
      files: {
        "environment/data file.txt": "data",
        "environment/back\\slash": "x",
        "tests/run": { text: "#!/bin/sh\n", mode: "755" },
        "tests/link": { symlink: "run" },
        "tests/nothing": { dir: 1 },
      },
    });
    temp.task("words/beta", { image: BUILT, test: "apt-get update\necho 1 > /logs/verifier/reward.txt" });
    temp.task("words/deep/gamma", { image: "debian:12" });
    await putImage(work.store, BASE, ["debian:12", PIN]);
    await putImage(work.store, OTHER, [BUILT]);
    return work;
  }

  /** What an export of `selection` asks for; every task starts the image that its task.toml names. */
  async request(out: string, selection: { only?: string[] } = {}): Promise<ExportRequest> {
    const input = await readInput(resolveTarget(this.data, "/"), selection, {}, never);
    const taken = new Set(input.tasks.map(({ task }) => task.id));
    return {
      out: this.temp.join(out),
      toolVersion: "1.2.3",
      platform: "linux/amd64",
      dataset: {
        folder: this.data,
        kind: "dataset",
        taskset: "words",
        source: "local",
        digests: input.digests,
        leftOut: [...input.folderDigests].filter(([id]) => !taken.has(id)).map(([, digest]) => digest),
        files: {},
      },
      tasks: input.tasks.map(({ task, digest }) => ({
        id: task.id,
        folder: task.folder,
        path: task.relativePath,
        folderDigest: input.folderDigests.get(task.id)!,
        digest,
        task,
        overlay: false,
        images: [refsOf(task.image.reference!)],
      })),
      baked: false,
      skipped: {},
    };
  }

  sources(given: Partial<ImageSources> = {}): ImageSources {
    return { platform: "linux/amd64", stores: [this.store], engines: [], ...given };
  }

  deps(): ExportDeps {
    return {
      clock: systemClock,
      emit: (event) => event.kind === "note" && this.notes.push(event.text),
    };
  }

  async export(out: string, change: (request: ExportRequest) => void = () => {}): Promise<Bundle> {
    const request = await this.request(out);
    change(request);
    return await exportBundle(request, this.sources(), this.deps(), never);
  }

  /** `file: what` of every fault. */
  async faults(out: string, platform?: string): Promise<string[]> {
    const folder = this.temp.join(out);
    const store = openStore(join(folder, "images/oci"), { clock: systemClock, readOnly: true });
    const { faults } = await verifyBundle(folder, { signal: never, passed: () => {}, store, platform });
    return faults.map(({ file, what }) => `${file}: ${what}`);
  }

  [Symbol.dispose](): void {
    this.temp[Symbol.dispose]();
  }
}

const refsOf = (reference: string): WantedImage => ({
  refs: reference === "debian:12" ? [PIN, "debian:12"] : [reference],
});
