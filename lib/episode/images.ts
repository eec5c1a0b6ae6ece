/**
 * The images of a run, taken up by its provider before the first episode: what a sandbox cannot do is found here and
 * leaves its task out; an image that cannot be had fails its tasks' episodes and nobody else's. Every answer is kept for
 * the run.
 */
import { HarborError, isAbort } from "../errors.ts";
import type { Emit } from "../events.ts";
import type { Start } from "../images/prepare.ts";
import type { Clock } from "../runtime/clock.ts";
import { pool } from "../runtime/pool.ts";
import type { PreparedImage, SandboxProvider } from "../sandbox/provider.ts";
import type { Task } from "../task/task.ts";

export interface PreparedImages {
  /** The task's image. Throws HarborError "image.failed" and the like for one that could not be had. */
  of(task: Task): PreparedImage;
  /** Task id → why it cannot run on this sandbox. */
  refused: Record<string, string>;
  /** Distinct references that a run of the prepared tasks starts, sorted. */
  references: string[];
}

/** For a run without a task to run. */
export const NO_IMAGES: PreparedImages = {
  of(task) {
    throw new HarborError("image.failed", `the image of ${task.id} was not prepared`);
  },
  refused: {},
  references: [],
};

/** How each task's image is had, or why it is not (lib/images/prepare.ts). Throws what a plan may throw. */
export type StartOf = (task: Task) => Start | HarborError;

/** An image that was there is not news. */
const WORTH_TELLING_MS = 1000;

/** Asks the provider for the image of every task, a few at a time. Throws only the abort and faults of our own. */
export async function takeUpImages(
  tasks: readonly Task[],
  startOf: StartOf,
  provider: SandboxProvider,
  concurrency: number,
  { clock, emit }: { clock: Clock; emit: Emit },
  signal: AbortSignal,
): Promise<PreparedImages> {
  const answers = new Map<string, PreparedImage | HarborError>();
  const refused: Record<string, string> = {};
  let done = 0;
  const tell = (task: Task, text: string) =>
    emit({ kind: "prepare", step: "image", task: task.id, text: `${task.id}: ${text}`, done, total: tasks.length });
  const takeUp = async (task: Task): Promise<void> => {
    const started = clock.ticks();
    try {
      const start = startOf(task);
      if (start instanceof HarborError) throw start;
      const image = start.finish(await provider.prepare(start.need, signal, emit));
      answers.set(task.id, image);
      done++;
      if (clock.ticks() - started > WORTH_TELLING_MS) tell(task, image.reference);
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof HarborError) || isAbort(error)) throw error;
      if (["task.unsupported", "not-built", "task.invalid"].includes(error.code)) refused[task.id] = error.message;
      else answers.set(task.id, error);
      done++;
      tell(task, error.message.split("\n", 1)[0]!);
    }
  };
  await pool(tasks, concurrency, takeUp, signal);
  signal.throwIfAborted();
  const images = [...answers.values()].flatMap((answer) => (answer instanceof HarborError ? [] : [answer]));
  return {
    of(task) {
      const answer = answers.get(task.id);
      if (answer === undefined) return NO_IMAGES.of(task);
      if (answer instanceof HarborError) throw answer;
      return answer;
    },
    refused,
    references: [...new Set(images.map(({ reference }) => reference))].sort(),
  };
}
