/** The two record files of a dataset folder, as they were last read. */
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { HarborError } from "../errors.ts";
import type { Emit } from "../events.ts";
import type { Clock } from "../runtime/clock.ts";
import { Gate } from "../runtime/pool.ts";
import { BUILT_IMAGES } from "./built.ts";
import { type JsonObject, readRecordFile, updateRecordFile } from "./record_file.ts";
import { COMPOSE_IMAGES } from "./records.ts";

type RecordFile = typeof COMPOSE_IMAGES | typeof BUILT_IMAGES;

export class Records {
  /** compose-images.json. */
  images: JsonObject = {};
  /** built-images.json. */
  built: JsonObject = {};
  #told = false;
  /** Within this process no merge waits for the file of another. */
  readonly #oneMerge = new Gate(1);

  /** Throws "store.corrupt". */
  constructor(readonly folder: string, private readonly deps: { clock: Clock; emit: Emit }) {
    this.read();
  }

  /** Absolute path of one of them. */
  pathOf(file: RecordFile): string {
    return join(this.folder, file);
  }

  /** Reads both again: other processes add to them. Throws "store.corrupt". */
  read(): void {
    this.images = readRecordFile(this.pathOf(COMPOSE_IMAGES));
    this.built = readRecordFile(this.pathOf(BUILT_IMAGES));
  }

  /**
   * Merges into one of them. A folder that cannot be written costs the next run the same work again, not this run its
   * images: that is said once.
   */
  update(file: RecordFile, change: (found: JsonObject) => JsonObject, signal: AbortSignal): Promise<void> {
    return this.#oneMerge.hold(() => this.#update(file, change, signal));
  }

  async #update(file: RecordFile, change: (found: JsonObject) => JsonObject, signal: AbortSignal): Promise<void> {
    try {
      this.#take(file, await updateRecordFile(this.pathOf(file), change, { clock: this.deps.clock, signal }));
    } catch (error) {
      if (!(error instanceof HarborError) || error.code !== "store.unwritable") throw error;
      this.#take(file, change(this.#of(file)));
      if (!this.#told) {
        const text = `${error.message}; what was found out about images is not kept for the next run`;
        this.deps.emit({ kind: "note", text });
      }
      this.#told = true;
    }
  }

  #of(file: RecordFile): JsonObject {
    return file === COMPOSE_IMAGES ? this.images : this.built;
  }

  #take(file: RecordFile, value: JsonObject): void {
    if (file === COMPOSE_IMAGES) this.images = value;
    else this.built = value;
  }
}

/** Absolute path → SHA-256 of the record files that are there, so that a reader of a run sees whether they changed. */
export function recordFacts(folder: string): Record<string, string> {
  const facts: Record<string, string> = {};
  for (const file of [BUILT_IMAGES, COMPOSE_IMAGES]) {
    const path = join(folder, file);
    if (existsSync(path)) facts[path] = createHash("sha256").update(readFileSync(path)).digest("hex");
  }
  return facts;
}
