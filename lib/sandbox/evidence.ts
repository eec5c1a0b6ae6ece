/** What an engine can still tell about a sandbox that is gone. */
import { HarborError } from "../errors.ts";
import { beginning } from "../excerpt.ts";
import type { Sandbox } from "./provider.ts";

/** A lost sandbox with what its engine can still tell about the end (field case B4). */
export async function withEvidence(error: unknown, box: Sandbox): Promise<unknown> {
  if (!(error instanceof HarborError) || error.code !== "sandbox.lost") return error;
  try {
    const alive = await box.alive();
    if (alive.state === "running") return error;
    const details = { ...error.details, oomKilled: alive.oomKilled ?? error.details?.oomKilled };
    const end = alive.exitCode === null ? alive.text : `exit code ${alive.exitCode}; ${alive.text}`;
    return new HarborError(error.code, `${error.message} (${beginning(end.trim(), 300)})`, {
      hint: error.hint,
      details,
      cause: error,
    });
  } catch {
    return error;
  }
}
