/**
 * Every digest of what a target names: a line a task, and a last one for a dataset (spec/decisions 22). Reads, writes
 * nothing. A task that does not load has digests all the same, as far as its files can be read.
 */
import { basename, join } from "node:path";
import { setImmediate } from "node:timers/promises";
import { datasetDigest, type DatasetDigests } from "../digest/dataset.ts";
import { type ContextHasher, hashLargeTask } from "../digest/large.ts";
import type { HashName } from "../digest/task.ts";
import { FileReader } from "../digest/reader.ts";
import { TaskTree } from "../digest/tree.ts";
import { HarborError } from "../errors.ts";
import { leftOut, type Target } from "../target/resolve.ts";
import { readTextFile } from "../task/read.ts";
import { Findings } from "../task/refusals.ts";
import { readSettings } from "../task/settings.ts";
import type { Finding } from "../task/task.ts";
import { effectiveDigests } from "./identity.ts";
import { type Dataset, openDataset } from "./load.ts";
import { withOverride } from "./overrides.ts";

export interface DigestProblem {
  digest: HashName | "effective_digest" | "dataset_digest";
  message: string;
  hint?: string;
}

/** Hex without `sha256:`; null where `problems` says why. */
export interface TaskDigestLine {
  path: string;
  task_digest: string | null;
  effective_digest: string | null;
  package_hash: string | null;
  context_hash: string | null;
  dirhash: string | null;
  problems?: DigestProblem[];
}

export interface DatasetDigestLine extends Omit<DatasetDigests, "dataset_digest"> {
  path: string;
  dataset_digest: string | null;
  /** Number of task folders. */
  tasks: number;
  problems?: DigestProblem[];
}

export interface DigestOptions {
  signal: AbortSignal;
  /** Hashes the build context of a large task beside us. */
  beside?: ContextHasher;
}

/** Tasks between two looks at the event loop: output leaves, Ctrl-C arrives. */
const BATCH = 64;

/** The lines, one by one as they are computed. Throws only the abort. */
export async function* digestTarget(
  target: Target,
  options: DigestOptions,
): AsyncGenerator<TaskDigestLine | DatasetDigestLine> {
  const dataset = openDataset(target);
  const digests = new Digests(dataset, options);
  let count = 0;
  for (const { path } of dataset.found) {
    if (count++ % BATCH === 0) await setImmediate();
    options.signal.throwIfAborted();
    yield target.kind === "task"
      ? await digests.task(target.folder, target.named)
      : await digests.task(join(target.folder, path), join(target.named, path));
  }
  if (target.kind === "dataset") yield digests.dataset();
}

class Digests {
  #folderDigests: string[] = [];
  #unhashed: string[] = [];
  #effective: ReturnType<typeof effectiveDigests> | undefined;

  constructor(readonly opened: Dataset, readonly options: DigestOptions) {
    const { folder, settings } = opened;
    if (settings !== null) this.#effective = effectiveDigests({ folder, settings });
  }

  async task(folder: string, path: string): Promise<TaskDigestLine> {
    const id = basename(folder);
    const tree = new TaskTree(folder);
    const reader = new FileReader();
    const facts = this.#factsOf(tree, id, reader);
    const hashes = await hashLargeTask(tree, { ...facts, ...this.options, reader, dirhash: true });
    const problems = hashes.problems.map(({ hash, ...problem }): DigestProblem => ({ digest: hash, ...problem }));
    const { task_digest, package_hash, context_hash, dirhash = null } = hashes;
    if (task_digest === null) this.#unhashed.push(path);
    else this.#folderDigests.push(task_digest);
    const effective_digest = task_digest === null ? null : this.#effectiveOf(id, task_digest, facts.graded, problems);
    return {
      path,
      task_digest,
      effective_digest,
      package_hash,
      context_hash,
      dirhash,
      ...(problems.length > 0 && { problems }),
    };
  }

  /** What task.toml says that hashes depend on; nothing where the loader refuses it, as in `check`. */
  #factsOf(tree: TaskTree, id: string, reader: FileReader): { dockerImage?: string; graded: boolean } {
    const read = readTextFile(tree.at("task.toml"), reader);
    const settings = read.ok ? readSettings(read.text, new Findings(), { strict: false, shownAs: id }) : null;
    if (settings === null) return { graded: false };
    const config = withOverride(settings.config, this.opened.settings?.overrides.get(id));
    const stepped = (config.steps ?? []).length > 0;
    return {
      dockerImage: config.environment?.docker_image || undefined,
      graded: this.opened.verifier !== null && !stepped && !tree.holds("tests"),
    };
  }

  #effectiveOf(id: string, folderDigest: string, graded: boolean, problems: DigestProblem[]): string | null {
    try {
      if (this.#effective !== undefined) return this.#effective(id, folderDigest, graded);
      problems.push(of(this.opened.errors[0]!, "effective_digest"));
    } catch (error) {
      problems.push(of(named(error), "effective_digest"));
    }
    return null;
  }

  dataset(): DatasetDigestLine {
    const { target, folder, found, settings, errors } = this.opened;
    const problems: DigestProblem[] = [];
    let digests: Partial<DatasetDigests> = {};
    try {
      digests = datasetDigest(folder, [...this.#folderDigests, ...leftOut(target)]);
    } catch (error) {
      problems.push(of(named(error), "dataset_digest"));
    }
    if (this.#unhashed.length > 0) {
      problems.push({ digest: "dataset_digest", message: `${this.#unhashed.join(", ")}: no task digest` });
    }
    // Faults of a dataset that has tasks and settings are for `check` to tell: its bytes are what they are.
    if (settings === null || found.length === 0) {
      problems.push(...errors.map((finding) => of(finding, settings === null ? "effective_digest" : "dataset_digest")));
    }
    const digested = !problems.some(({ digest }) => digest === "dataset_digest");
    return {
      path: target.named,
      ...digests,
      dataset_digest: digested ? digests.dataset_digest! : null,
      tasks: found.length,
      ...(problems.length > 0 && { problems }),
    };
  }
}

const of = ({ message, hint }: Pick<Finding, "message" | "hint">, digest: DigestProblem["digest"]): DigestProblem => ({
  digest,
  message,
  ...(hint !== undefined && { hint }),
});

function named(error: unknown): HarborError {
  if (error instanceof HarborError) return error;
  throw error;
}
