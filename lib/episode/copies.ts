/**
 * A private copy of the files a task brings into its sandbox, made once per task and run (episodes §3.2 #2–3): what is
 * graded with is what was planned, whatever happens to the folder meanwhile. Files become readable for everyone, since
 * a test may run as a user that owns none of them; what `.harborignore` names stays out.
 */
import { chmod, constants, copyFile, mkdir, readlink, rm, stat, symlink } from "node:fs/promises";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { crossing } from "../errors.ts";
import { type Kind, walkTree } from "../files/tree.ts";
import { EpisodeFailure } from "./failures.ts";
import type { PlannedTask } from "./plan.ts";

export interface TaskCopy {
  /** Folder with what belongs into /tests; null without one. */
  tests: string | null;
  /** Folder with what belongs into /solution; null without one. */
  solution: string | null;
  /** environment/ files that go to the working directory; null when the image has them. */
  uploads: string | null;
}

export interface CopyDeps {
  /** Private folder of the run. */
  scratch: string;
  /** Effective digest of a task folder as it is now. */
  digestOf(planned: PlannedTask): Promise<string>;
  /** Whether a path of the task's folder is left out of uploads. */
  ignored(planned: PlannedTask): (relativePath: string, kind: Kind) => boolean;
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
      return {
        tests: await copyTree(task.folder, "tests", folder, ignored),
        solution: this.deps.withSolution ? await copyTree(task.folder, "solution", folder, ignored) : null,
        uploads: task.image.uploads ? await copyTree(task.folder, "environment", folder, ignored) : null,
      };
    });
    const now = await this.deps.digestOf(planned).catch(() => null); // unreadable now: changed as well
    if (now === digest) return copy;
    const message = `Task folder ${task.folder} changed since materialization; re-materialize the taskset`;
    throw new EpisodeFailure(message, { stage: "seed", kind: null, terminal: true });
  }
}

/** Copies `from/name` to `to/name`; null when there is none. Links stay links. */
async function copyTree(
  from: string,
  name: string,
  to: string,
  ignored: ReturnType<CopyDeps["ignored"]>,
): Promise<string | null> {
  if (!existsSync(join(from, name))) return null;
  const target = join(to, name);
  await mkdir(target, { recursive: true, mode: 0o755 });
  const work: (() => Promise<void>)[] = [];
  walkTree(join(from, name), ({ path, kind }) => {
    if (ignored(`${name}/${path}`, kind)) return false;
    const [source, copy] = [join(from, name, path), join(target, path)];
    if (kind === "dir") work.push(async () => void (await mkdir(copy, { recursive: true, mode: 0o755 })));
    else if (kind === "link") work.push(async () => await symlink(await readlink(source), copy));
    else if (kind === "file") work.push(() => copyReadable(source, copy));
  });
  for (const step of work) await step();
  return target;
}

async function copyReadable(source: string, copy: string): Promise<void> {
  await mkdir(dirname(copy), { recursive: true, mode: 0o755 });
  await copyFile(source, copy, constants.COPYFILE_FICLONE);
  const { mode } = await stat(source);
  await chmod(copy, (mode & 0o777) | 0o644 | (mode & 0o100 ? 0o111 : 0));
}
