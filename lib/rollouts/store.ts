/**
 * The rows of one run on disk. The folder is locked before the first row is read and until the summary is written. A
 * row is written once, by one write and a sync, and counts from then on; a fresh start keeps the old files as `.bak`.
 */
import { constants, existsSync } from "node:fs";
import { access, mkdir, rename } from "node:fs/promises";
import { dirname } from "node:path";
import { errno } from "../errors.ts";
import { writeAtomic } from "../files/atomic.ts";
import { JsonlAppender, readJsonl } from "../files/jsonl.ts";
import { type FileLock, lockFile } from "../files/lock.ts";
import { unwritable } from "../files/unwritable.ts";
import type { Clock } from "../runtime/clock.ts";
import type { RunPaths } from "./paths.ts";
import { type Outcome, ReadFailure, ReadMaterialized, ReadResult } from "./schema.ts";

export interface StoreOptions {
  clock: Clock;
  signal: AbortSignal;
  note(text: string): void;
}

export class RunStore implements AsyncDisposable {
  #results: JsonlAppender | undefined;
  #failures: JsonlAppender | undefined;

  private constructor(
    readonly paths: RunPaths,
    private readonly lock: FileLock,
    private readonly options: StoreOptions,
  ) {}

  /**
   * Throws "store.unwritable" when the folder is not writable or cannot be made; makes nothing. So a machine without a
   * usable sandbox is left as it was.
   */
  static async check(paths: RunPaths): Promise<void> {
    for (let folder = paths.folder;; folder = dirname(folder)) {
      try {
        return await access(folder, constants.W_OK | constants.X_OK);
      } catch (cause) {
        if (errno(cause) !== "ENOENT" || folder === "/") throw unwritable(`Cannot write into ${folder}`, cause);
      }
    }
  }

  /** Makes the folder and takes its lock. Throws "store.unwritable" or "store.locked" before anything is touched. */
  static async open(paths: RunPaths, options: StoreOptions): Promise<RunStore> {
    try {
      await mkdir(paths.folder, { recursive: true });
    } catch (cause) {
      throw unwritable(`Cannot make the results folder ${paths.folder}`, cause);
    }
    return new RunStore(paths, await lockFile(paths.lock, { ...options, waitMs: 0 }), options);
  }

  /** Rows of an earlier run, in file order: materialized inputs, failures, results. Half a last line is skipped, told. */
  async *materialized(): AsyncGenerator<ReadMaterialized> {
    yield* this.#read(this.paths.materialized, (value) => ReadMaterialized.parse(value));
  }
  async *failures(): AsyncGenerator<ReadFailure> {
    yield* this.#read(this.paths.failures, (value) => ReadFailure.parse(value));
  }
  async *results(): AsyncGenerator<ReadResult> {
    yield* this.#read(this.paths.rollouts, (value) => ReadResult.parse(value));
  }

  async *#read<T>(path: string, parse: (value: unknown) => T): AsyncGenerator<T> {
    if (!existsSync(path)) return;
    for await (const { value } of readJsonl(path, { parse, note: this.options.note })) yield value;
  }

  /** Moves what an earlier run left out of the way, one generation deep. */
  async setAside(): Promise<void> {
    const { rollouts, failures, materialized, aggregate, summary } = this.paths;
    const moved: string[] = [];
    for (const path of [rollouts, failures, materialized, aggregate, summary]) {
      try {
        await rename(path, `${path}.bak`);
        moved.push(path);
      } catch (cause) {
        if (errno(cause) !== "ENOENT") throw unwritable(`Cannot rename ${path}`, cause);
      }
    }
    if (moved.includes(rollouts) || moved.includes(failures)) {
      this.options.note(`earlier results were renamed: ${rollouts}.bak and its companions; --resume goes on with them`);
    }
  }

  /** Opens the files for rows; half a last line is cut off, told. */
  async begin(): Promise<void> {
    this.#results = await JsonlAppender.open(this.paths.rollouts, this.options);
    this.#failures = await JsonlAppender.open(this.paths.failures, this.options);
  }

  /**
   * When this settles, the row is on disk. Throws "store.unwritable", and the file then ends in its last whole row;
   * "store.locked" when another run took the files over (this process was stopped for minutes).
   */
  async append(outcome: Outcome): Promise<void> {
    this.lock.lost.throwIfAborted();
    const file = outcome.kind === "result" ? this.#results : this.#failures;
    if (file === undefined) throw new TypeError("begin() comes first");
    await file.append(outcome.row);
  }

  /** Replaces one of the run's other files in one step. Throws as append(). */
  async write(path: string, text: string): Promise<void> {
    this.lock.lost.throwIfAborted();
    try {
      await writeAtomic(path, text);
    } catch (cause) {
      throw unwritable(`Cannot write ${path}`, cause);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#results?.close();
    await this.#failures?.close();
    this.lock[Symbol.dispose]();
  }
}
