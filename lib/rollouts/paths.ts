/** Where the files of a run lie (images §1.4, episodes §6, evaluation §1, decisions 10). Pure. */
import { basename, dirname, join, resolve } from "node:path";
import { HarborError } from "../errors.ts";

export interface RunPaths {
  /** Folder of all of them, absolute. */
  folder: string;
  /** Name of the rollouts file without `.jsonl`. */
  stem: string;
  rollouts: string;
  failures: string;
  materialized: string;
  aggregate: string;
  summary: string;
  lock: string;
  /** Log folders of verifications. */
  verifier: string;
  taskRows: string;
  runConfig: string;
  skipped: string;
  images: string;
}

export interface PathFacts {
  cwd: string;
  taskset: string;
  agentName: string;
  /** `validate`: below `validation/`. */
  validation: boolean;
  /** --output, as given. */
  output?: string;
}

/** Throws HarborError "usage" for an --output that is not a .jsonl file. */
export function runPaths(facts: PathFacts): RunPaths {
  const usual = join("results", "harbor", ...(facts.validation ? ["validation"] : []), facts.taskset, "rollouts.jsonl");
  const rollouts = resolve(facts.cwd, facts.output ?? usual);
  if (!rollouts.endsWith(".jsonl")) {
    throw new HarborError("usage", `--output ${facts.output}: the rollouts file must end in .jsonl`, {
      hint: `for example --output ${facts.output}/rollouts.jsonl`,
    });
  }
  const folder = dirname(rollouts);
  const stem = basename(rollouts, ".jsonl");
  const beside = (suffix: string) => join(folder, `${stem}${suffix}`);
  return {
    folder,
    stem,
    rollouts,
    failures: beside("_failures.jsonl"),
    materialized: beside("_materialized_inputs.jsonl"),
    aggregate: beside("_aggregate_metrics.json"),
    summary: beside("_run_summary.json"),
    lock: beside("_run.lock"),
    verifier: join(folder, "verifier"),
    taskRows: join(folder, `tasks_${facts.agentName}.jsonl`),
    runConfig: join(folder, `run_config_${facts.agentName}.yaml`),
    skipped: join(folder, "skipped.json"),
    images: join(folder, "images.json"),
  };
}
