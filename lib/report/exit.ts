/** What the exit code of a finished run says (decisions 9, episodes §9). Pure. */
import type { EvaluationResult } from "../episode/evaluate.ts";
import { EXIT } from "../errors.ts";

/** `validate`: 0 when at least one solution ran, all that ran scored 1 or more, and every selected folder loaded. */
export function validateExit({ records, skipped, interrupted }: EvaluationResult): number {
  if (interrupted) return EXIT.interrupted;
  const good = records.every(({ entry }) => entry.status === "result" && !entry.mask_sample && entry.reward! >= 1);
  return good && records.length > 0 && Object.keys(skipped).length === 0 ? EXIT.ok : EXIT.no;
}

/** `run`: 0 when it did its work, whatever the rewards; 1 when nothing produced a result. */
export function runExit({ records, interrupted }: EvaluationResult): number {
  if (interrupted) return EXIT.interrupted;
  return records.some(({ entry }) => entry.status === "result") ? EXIT.ok : EXIT.no;
}
