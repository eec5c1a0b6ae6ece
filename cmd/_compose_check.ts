/** What `check` says of a Compose file. Loaded only where there is one: the readers of YAML take a moment to start. */
import { readCompose } from "../lib/compose/mod.ts";
import { buildOptions, platformOfOptions } from "../lib/images/options.ts";
import { imageName } from "../lib/images/plan.ts";
import { Findings } from "../lib/task/refusals.ts";
import type { Finding, Task } from "../lib/task/task.ts";

/** Warnings, not errors: the task loads, and what its file asks for may be had elsewhere. */
export function composeWarnings(
  task: Task,
  shownAs: string,
  env: Readonly<Record<string, string | undefined>>,
): Finding[] {
  const reading = readCompose({
    task,
    taskImage: imageName(task.contextHash ?? task.id),
    hostEnv: env,
    overlays: [],
    platform: platformOfOptions(buildOptions({}, {})),
  });
  const findings = new Findings();
  const file = "environment/docker-compose.yaml";
  if (!reading.ok) findings.add("compose.refused", { at: shownAs, ...reading }, { file });
  return findings.warnings;
}
