/** The one way to say that results, rows or locks cannot be written. */
import { HarborError, isDiskFull } from "../errors.ts";
import { reasonOf } from "./reason.ts";

/** HarborError "store.unwritable"; `doing` names the file ("Cannot write /out/rollouts.jsonl"). */
export function unwritable(doing: string, cause: unknown): HarborError {
  return new HarborError("store.unwritable", `${doing}: ${reasonOf(cause)}`, {
    cause,
    hint: isDiskFull(cause)
      ? "free some space, then continue with --resume; or name a folder on another disk with --output"
      : "make the folder writable, or choose another place with --output FILE.jsonl",
  });
}
