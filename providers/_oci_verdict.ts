/** What went wrong around a command or with its sandbox, in words; pure. */
import { HarborError } from "../lib/errors.ts";
import { decisiveLine, engineFailure } from "../lib/sandbox/failure.ts";
import type { Alive } from "../lib/sandbox/provider.ts";
import { cannotSet, refuseVariables } from "../lib/sandbox/variables.ts";
import type { ExecEnding } from "./_oci_exec.ts";
import { shellCanExport } from "./_oci_scripts.ts";

/** The user as the engine must hear it; undefined for root. */
export const asRoot = (user: string | undefined): string | undefined =>
  user === undefined || /^(root|0|root:root|0:0)?$/.test(user) ? undefined : user;

/**
 * The names that only a launcher which is bash hands on. Throws "task.unsupported" for a variable that cannot reach a
 * command.
 */
export function oddVariables(env: Readonly<Record<string, string>>, hasBash: boolean): string[] {
  refuseVariables(env);
  const odd = Object.keys(env).filter((name) => !shellCanExport(name));
  if (odd.length > 0 && !hasBash) {
    const why = "the image has no bash, and its sh passes on no such name";
    throw cannotSet(odd[0]!, why, "rename it, or install bash in the image");
  }
  return odd;
}

export interface Attempted {
  /** Id of the sandbox. */
  id: string;
  engine: string;
  cwd: string;
  user: string | undefined;
}

/** A command that never began, in a sandbox that is still there. */
export function notStarted(
  ending: Extract<ExecEnding, { kind: "refused" | "cwd" }>,
  { id, engine, cwd, user }: Attempted,
): HarborError {
  const failed = (why: string, hint?: string) =>
    new HarborError("sandbox.failed", `Cannot run a command in ${id}: ${why}`, { hint });
  if (ending.kind === "cwd") return failed(`working directory ${cwd} is not there or may not be entered`);
  const failure = engineFailure(ending.text);
  switch (failure?.kind) {
    case "no-user":
      return failed(
        `user ${user} is not in its image (${failure.line})`,
        "name a user of the image's /etc/passwd, or a number",
      );
    case "processes-full":
      return noMore(id, "its process table is full", failure.line);
    case "no-program":
    case "not-executable":
      return noMore(id, "its /bin/sh cannot be started any more", failure.line);
  }
  if (ending.stalled) return failed(`${engine} did not start it in time`);
  return failed(`${failure?.line ?? decisiveLine(ending.text)} (exit code ${ending.exitCode})`);
}

const noMore = (id: string, why: string, line: string): HarborError =>
  new HarborError("sandbox.lost", `Sandbox ${id} takes no more commands: ${why} (${line})`);

/** A sandbox that is gone, by the evidence. */
export function lost(id: string, alive: Extract<Alive, { state: "gone" }>): HarborError {
  const how = alive.oomKilled === true
    ? "the kernel ended it for want of memory"
    : alive.exitCode === null
    ? `it is not there any more (${alive.text})`
    : `its first process ended with exit code ${alive.exitCode}`;
  return new HarborError("sandbox.lost", `Sandbox ${id} is gone: ${how}`, { details: { ...alive } });
}
