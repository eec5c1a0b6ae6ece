/**
 * The images of a run, taken up by its provider before the first episode: what a sandbox cannot do is found here and
 * leaves its task out; an image that cannot be had fails its tasks' episodes and nobody else's. Every answer is kept for
 * the run.
 */
import { type ComposePlan, type ResolvedGroup, resolveServices } from "../compose/mod.ts";
import { HarborError, isAbort } from "../errors.ts";
import type { Emit } from "../events.ts";
import { serviceRole } from "../images/compose.ts";
import type { Prepared, PreparedStart } from "../images/prepare.ts";
import type { Clock } from "../runtime/clock.ts";
import { pool } from "../runtime/pool.ts";
import type { PreparedImage, SandboxProvider } from "../sandbox/provider.ts";
import type { Task } from "../task/task.ts";

export interface PreparedImages {
  /**
   * An image of the task: its own, or that of another role (`service:<name>`). Throws HarborError "image.failed" and the
   * like for one that could not be had.
   */
  of(task: Task, role?: string): PreparedImage;
  /** The Compose file of a task and what a group starts for it; null for a task without one. */
  composeOf(task: Task): { plan: ComposePlan; group: ResolvedGroup } | null;
  /** Task id → why it cannot run on this sandbox. */
  refused: Record<string, string>;
  /** Task id → why the image that it wants built could not be: its episodes fail at seed, and skipped.json says why. */
  unbuilt: Record<string, string>;
  /** Distinct references that a run of the prepared tasks starts, sorted. */
  references: string[];
  /** Reference → the name under which this machine holds that image, where it is another one. */
  aliases: Record<string, string>;
  /** Images that could not be had, by name, with the reason of each. */
  missing: Record<string, string>;
}

/** For a run without a task to run. */
export const NO_IMAGES: PreparedImages = {
  of(task) {
    throw new HarborError("image.failed", `the image of ${task.id} was not prepared`);
  },
  composeOf: () => null,
  refused: {},
  unbuilt: {},
  references: [],
  aliases: {},
  missing: {},
};

/** An image that was there is not news. */
const WORTH_TELLING_MS = 1000;

const LEAVES_OUT = ["task.unsupported", "not-built", "task.invalid"];

/** What the agent's side of an episode starts; verifiers are opened when their time comes. */
const isAgentSide = (role: string): boolean => role === "main" || role.startsWith("service:");

/** Asks the provider for the images of every task, a few at a time. Throws only the abort and faults of our own. */
export async function takeUpImages(
  tasks: readonly Task[],
  prepared: Prepared,
  provider: SandboxProvider,
  concurrency: number,
  { clock, emit }: { clock: Clock; emit: Emit },
  signal: AbortSignal,
): Promise<PreparedImages> {
  const answers = new Map<string, Map<string, PreparedImage | HarborError>>();
  const groups = new Map<string, { plan: ComposePlan; group: ResolvedGroup }>();
  const refused: Record<string, string> = { ...prepared.refused };
  const missing: Record<string, string> = {};
  const left = tasks.filter(({ id }) => !Object.hasOwn(refused, id));
  let done = 0;
  const tell = (task: Task, text: string) =>
    emit({ kind: "prepare", step: "image", task: task.id, text: `${task.id}: ${text}`, done, total: left.length });
  const one = async (start: PreparedStart): Promise<PreparedImage | HarborError> => {
    try {
      if (start instanceof HarborError) throw start;
      return start.finish(await provider.prepare(start.need(), signal, emit));
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof HarborError) || isAbort(error)) throw error;
      return error;
    }
  };
  const takeUp = async (task: Task): Promise<void> => {
    const started = clock.ticks();
    const mine = new Map<string, PreparedImage | HarborError>();
    answers.set(task.id, mine);
    for (const [role, start] of prepared.images.get(task.id)!) {
      if (!isAgentSide(role)) continue;
      const answer = await one(start);
      mine.set(role, answer);
      if (!(answer instanceof HarborError)) continue;
      if (LEAVES_OUT.includes(answer.code)) refused[task.id] ??= answer.message;
      else missing[nameOf(start, answer)] ??= answer.message;
    }
    const plan = prepared.compose.get(task.id);
    if (plan !== undefined && refused[task.id] === undefined) {
      const group = await groupOf(plan, mine, provider, signal);
      if (group instanceof HarborError) refused[task.id] = group.message;
      else if (group !== undefined) groups.set(task.id, { plan, group });
    }
    done++;
    const failure = [...mine.values()].find((answer) => answer instanceof HarborError);
    if (failure !== undefined) tell(task, failure.message.split("\n", 1)[0]!);
    else if (clock.ticks() - started > WORTH_TELLING_MS) tell(task, (mine.get("main") as PreparedImage).reference);
  };
  await pool(left, concurrency, takeUp, signal);
  signal.throwIfAborted();
  const images = Array.from(answers.values(), (mine) => [...mine.values()]).flat()
    .filter((answer): answer is PreparedImage => !(answer instanceof HarborError));
  return {
    of(task, role = "main") {
      const mine = answers.get(task.id);
      // A service that cannot be started fails its task as its own image would.
      const failed = [...mine?.values() ?? []].find((answer) => answer instanceof HarborError);
      const answer = failed ?? mine?.get(role);
      if (answer === undefined) return NO_IMAGES.of(task);
      if (answer instanceof HarborError) throw answer;
      return answer;
    },
    composeOf: (task) => groups.get(task.id) ?? null,
    refused,
    unbuilt: Object.fromEntries(
      prepared.failures.filter(({ kind }) => kind === "build")
        .flatMap((failure) => failure.tasks.map((id) => [id, failure.error.message])),
    ),
    references: [...new Set(images.map(({ reference }) => reference))].sort(),
    aliases: Object.fromEntries(
      images.flatMap(({ reference, alias }) => (alias === undefined ? [] : [[reference, alias]])),
    ),
    missing,
  };
}

/** What a group starts; why it cannot, or undefined while an image is missing: that is the task's failure then. */
async function groupOf(
  plan: ComposePlan,
  images: ReadonlyMap<string, PreparedImage | HarborError>,
  provider: SandboxProvider,
  signal: AbortSignal,
): Promise<ResolvedGroup | HarborError | undefined> {
  if (plan.needsGroup && provider.openGroup === undefined) {
    return new HarborError("task.unsupported", `${provider.name} cannot run a Compose task`);
  }
  const lacks = plan.needsGroup ? await provider.noGroups?.(signal) : undefined;
  if (lacks !== undefined) {
    return new HarborError("task.unsupported", `--sandbox ${provider.name} cannot run a Compose task: ${lacks.what}`, {
      hint: lacks.fix,
    });
  }
  const byService: Record<string, PreparedImage> = {};
  for (const { name } of plan.services) {
    const image = images.get(serviceRole(name));
    if (image === undefined || image instanceof HarborError) return undefined;
    byService[name] = image;
  }
  try {
    return resolveServices(plan, byService);
  } catch (error) {
    if (error instanceof HarborError) return error;
    throw error;
  }
}

/** The image as its user knows it. */
function nameOf(start: PreparedStart, { details }: HarborError): string {
  const named = details?.missing ?? details?.reference;
  if (typeof named === "string") return named;
  return start instanceof HarborError ? "an image" : start.reference ?? "an image";
}

/** The refusal of images §8.4 for a run that must not ask any network. */
export function offlineRefusal(missing: Readonly<Record<string, string>>): HarborError {
  const names = Object.keys(missing).sort();
  return new HarborError(
    "image.missing",
    `Offline: ${names.length} image(s) are missing: ${names.join(", ")}; run gym-harbor bundle import`,
    { hint: missing[names[0]!], details: { missing } },
  );
}
