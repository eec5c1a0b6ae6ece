/**
 * Who made a container, a mount or a temp folder: the run, and the process that must be alive for it to be in use; and
 * the labels by which containers say so.
 */
import { type ProcessIdentity, thisProcess } from "../runtime/process_identity.ts";
import { randomWord } from "../runtime/random.ts";

export { isAlive, startTime } from "../runtime/process_identity.ts";

export interface Owner extends ProcessIdentity {
  /** Random id of the run, `[a-z0-9]{8}`. */
  readonly run: string;
}

/** This process as an owner. */
export const thisOwner = (run: string): Owner => ({ run, ...thisProcess() });

/** A random id for a run. */
export const newRunId = (): string => randomWord(8);

/** Whether a filter by runs means this owner's. */
export function concerns(
  filter: { run?: string; except?: (run: string) => boolean },
  { run }: Pick<Owner, "run">,
): boolean {
  return (filter.run === undefined || filter.run === run) && filter.except?.(run) !== true;
}

/** Labels that every object of ours carries, as upstream's provider names them plus the owner. */
export const LABEL = "gym-harbor";

export function labelsOf(owner: Owner, episode: string, role: string): Record<string, string> {
  return {
    [`${LABEL}.run`]: owner.run,
    [`${LABEL}.host`]: owner.host,
    [`${LABEL}.pid`]: String(owner.pid),
    [`${LABEL}.start`]: owner.start,
    [`${LABEL}.episode`]: episode,
    [`${LABEL}.role`]: role,
  };
}

/** The owner that labels name; undefined when they are not ours. */
export function ownerOf(labels: Readonly<Record<string, string | undefined>>): Owner | undefined {
  const run = labels[`${LABEL}.run`];
  const host = labels[`${LABEL}.host`];
  const pid = Number(labels[`${LABEL}.pid`]);
  if (run === undefined || host === undefined || !Number.isInteger(pid) || pid <= 0) return undefined;
  return { run, host, pid, start: labels[`${LABEL}.start`] ?? "" };
}
