/**
 * A private copy of the files a task brings into its sandbox, made once per task and run (episodes §3.2 #2–3): what is
 * graded with is what was planned, whatever happens to the folder meanwhile. Files become readable for everyone, since
 * a test may run as a user that owns none of them; what `.harborignore` names stays out.
 */
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { crossing } from "../errors.ts";
import { copyForAll } from "../files/copy.ts";
import type { Kind } from "../files/tree.ts";
import { EpisodeFailure } from "./failures.ts";
import type { PlannedTask } from "./plan.ts";

export interface TaskCopy {
  /** Folder with what belongs into /tests; null without one. */
  tests: string | null;
  /** Folder with what belongs into /solution; null without one. */
  solution: string | null;
  /** environment/ files that go to the working directory; null when the image has them. */
  uploads: string | null;
  /** Folder that holds, at their paths below the task, what a Compose file mounts; null when it mounts nothing. */
  mounted: string | null;
}

export interface CopyDeps {
  /** Private folder of the run. */
  scratch: string;
  /** Effective digest of a task folder as it is now. */
  digestOf(planned: PlannedTask): Promise<string>;
  /** Whether a path of the task's folder is left out of uploads. */
  ignored(planned: PlannedTask): (relativePath: string, kind: Kind) => boolean;
  /** Paths below the task that its Compose file mounts into services. Default: none. */
  mounted?(planned: PlannedTask): readonly string[];
  /** The oracle alone gets the solution; other agents' copies have none. */
  withSolution: boolean;
}

interface Held {
  folder: string;
  copy: Promise<TaskCopy>;
  users: number;
}

export class TaskCopies {
  /** By task index. */
  #held = new Map<number, Held>();
  #made = 0;

  constructor(private readonly deps: CopyDeps) {}

  /**
   * The copy for one episode, until it is disposed of; the last user's disposal removes it. Throws EpisodeFailure
   * (seed, terminal) when the folder is no longer what was planned.
   */
  async take(planned: PlannedTask): Promise<{ copy: TaskCopy } & AsyncDisposable> {
    const held = this.#held.get(planned.taskIndex) ?? this.#start(planned);
    held.users++;
    const release = async () => {
      if (--held.users > 0) return;
      if (this.#held.get(planned.taskIndex) === held) this.#held.delete(planned.taskIndex);
      await rm(held.folder, { recursive: true, force: true });
    };
    try {
      return { copy: await held.copy, [Symbol.asyncDispose]: release };
    } catch (error) {
      await release();
      throw error;
    }
  }

  #start(planned: PlannedTask): Held {
    const folder = join(this.deps.scratch, `task-${planned.taskIndex}-${this.#made++}`);
    const held = { folder, copy: this.#make(planned, folder), users: 0 };
    this.#held.set(planned.taskIndex, held);
    return held;
  }

  async #make(planned: PlannedTask, folder: string): Promise<TaskCopy> {
    const { task, digest } = planned;
    const copy = await crossing("machine.lacks", `Cannot copy the task ${task.id} to ${folder}`, async () => {
      const ignored = this.deps.ignored(planned);
      const copy = async (name: string, wanted = true): Promise<string | null> => {
        const [from, to] = [join(task.folder, name), join(folder, name)];
        const leaveOut = (path: string, kind: Kind) => ignored(`${name}/${path}`, kind);
        return wanted && await copyForAll(from, to, { ignored: leaveOut }) ? to : null;
      };
      return {
        tests: await copy("tests"),
        solution: await copy("solution", this.deps.withSolution),
        uploads: await copy("environment", task.image.uploads),
        mounted: await copyMounted(task.folder, this.deps.mounted?.(planned) ?? [], join(folder, "mounted")),
      };
    });
    const now = await this.deps.digestOf(planned).catch(() => null); // unreadable now: changed as well
    if (now === digest) return copy;
    const message = `Task folder ${task.folder} changed since materialization; re-materialize the taskset`;
    throw new EpisodeFailure(message, { stage: "seed", kind: null, terminal: true });
  }
}

/** What is not there becomes an empty folder, as Compose makes it. */
async function copyMounted(from: string, paths: readonly string[], to: string): Promise<string | null> {
  // A folder comes before what lies in it, which it brings along.
  const tops = [...new Set(paths)].sort().filter((path, _, all) => !all.some((other) => path.startsWith(`${other}/`)));
  for (const path of tops) {
    if (!await copyForAll(join(from, path), join(to, path))) await mkdir(join(to, path), { recursive: true });
  }
  return tops.length === 0 ? null : to;
}
