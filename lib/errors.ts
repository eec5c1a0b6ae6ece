/**
 * What went wrong, by a stable code, with the fact and the next step.
 *
 * A message says what was attempted, then the value found and the value wanted. Only the edges print
 * (`main.ts`); deeper code catches only what it can answer. Any other error class is a bug of ours.
 */

/** Stable names for what went wrong. Scripts match on the code; the wording is free to improve. */
export type Code =
  | "usage" // the command line is wrong
  | "not-built" // a command or feature of the contract that this version does not have
  | "target.missing" // the path that was named is not there
  | "task.invalid" // a task or dataset folder does not load
  | "task.unsupported" // loads, but cannot be run as asked on this sandbox or in this version
  | "engine.missing" // this machine lacks a usable sandbox
  | "machine.lacks" // this machine lacks something else (a program, a right, space)
  | "image.failed" // an image could not be found, pulled or built
  | "image.missing" // --offline, and images are not on this machine
  | "sandbox.failed" // a sandbox could not be started or did not do what we asked
  | "sandbox.lost" // a sandbox that was running is gone
  | "transfer.failed" // files could not be carried in or out
  | "store.unwritable" // results cannot be written
  | "store.corrupt" // a results file holds what we did not write
  | "store.locked" // another run holds the results folder
  | "store.mismatch" // --resume onto the results of something else
  | "bundle.invalid" // a bundle folder is half written, broken or from a newer version
  | "aborted";

export interface ErrorFacts {
  /** What to do next. */
  hint?: string;
  /** The facts behind the message, printed under --json. */
  details?: Record<string, unknown>;
  cause?: unknown;
}

export class HarborError extends Error {
  override readonly name = "HarborError";
  readonly hint: string | undefined;
  readonly details: Record<string, unknown> | undefined;

  constructor(readonly code: Code, message: string, facts: ErrorFacts = {}) {
    super(message, facts.cause === undefined ? undefined : { cause: facts.cause });
    this.hint = facts.hint;
    this.details = facts.details;
  }
}

/** Names the boundary a stray error crossed. A HarborError passes: it was named nearer its cause. */
export async function crossing<T>(code: Code, doing: string, step: () => Promise<T>): Promise<T> {
  try {
    return await step();
  } catch (cause) {
    if (cause instanceof HarborError || isAbort(cause)) throw cause;
    throw new HarborError(code, `${doing}: ${messageOf(cause)}`, { cause });
  }
}

/** An error of `code` with what was attempted before its message; anything else as it is. */
export function attempting(doing: string, code: Code, thrown: unknown): unknown {
  if (!(thrown instanceof HarborError) || thrown.code !== code) return thrown;
  const { message, hint, details } = thrown;
  return new HarborError(code, `${doing}: ${message}`, { hint, details, cause: thrown });
}

/** The text of anything that was thrown. */
export function messageOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}

/** Whether this is the echo of a cancelled signal rather than a fault. */
export function isAbort(thrown: unknown): boolean {
  return thrown instanceof Error &&
    (thrown.name === "AbortError" || (thrown as { code?: string }).code === "ABORT_ERR");
}

/** The `code` of a Node file or process error (`ENOENT`, `EACCES`, …), if it has one. */
export function errno(thrown: unknown): string | undefined {
  const code = (thrown as { code?: unknown } | null)?.code;
  return typeof code === "string" ? code : undefined;
}

/** Whether a full disk (or quota) is at the bottom of it. */
export function isDiskFull(thrown: unknown): boolean {
  for (let error = thrown; error instanceof Error; error = error.cause) {
    const code = errno(error);
    if (code === "ENOSPC" || code === "EDQUOT") return true;
  }
  return false;
}

/** Exit codes of the program (spec/decisions 9). */
export const EXIT = { ok: 0, no: 1, usage: 2, machine: 3, hungUp: 129, interrupted: 130, terminated: 143 } as const;

/** Which exit code an error that reached the edge stands for. */
export function exitCodeOf(code: Code): number {
  switch (code) {
    case "usage":
    case "not-built":
    case "target.missing":
    case "image.missing":
      return EXIT.usage;
    case "engine.missing":
    case "machine.lacks":
    case "store.unwritable":
      return EXIT.machine;
    case "aborted":
      return EXIT.interrupted;
    default:
      return EXIT.no;
  }
}
