/**
 * From the images that tasks want built to one build each (images §1.3 step 6, §3.5): equal contexts are built once,
 * whoever asks. Reads the contexts, asks nobody.
 */
import { type BuildInputs, inputDifferences, inputsDigest } from "../digest/context.ts";
import { byCodePoint } from "../files/order.ts";
import type { BuildPlan } from "./plan.ts";

/** A build with all tasks that want it. */
export interface Build extends BuildPlan {
  inputsDigest: string;
  tasks: string[];
  forcedTasks: string[];
}

/** What of `plan` goes into its inputs digest (task-format §9.4). */
function inputsOf(plan: BuildPlan, owner: string, platform: string): BuildInputs {
  const { args, target, service, dockerfile, context } = plan;
  return {
    owner,
    folder: context,
    settings: {
      platform,
      ...(Object.keys(args).length > 0 && { build_args: args }),
      ...(target !== undefined && { target }),
      dockerfile: "path" in dockerfile ? dockerfile.path.slice(context.length + 1) : dockerfile.inline,
      service,
    },
  };
}

/**
 * One build per name. Of two tasks whose contexts have one hash and unequal inputs, the first by id wins; the other is
 * left out with what differs. Reads every context.
 */
export function collectBuilds(
  wanted: readonly { taskId: string; builds: readonly BuildPlan[] }[],
  platform: string,
): { builds: Build[]; refused: Record<string, string> } {
  const found = new Map<string, { build: Build; inputs: BuildInputs }>();
  const refused: Record<string, string> = {};
  for (const { taskId, builds } of [...wanted].sort((a, b) => byCodePoint(a.taskId, b.taskId))) {
    const distinct = new Map(builds.map((plan) => [plan.name, plan]));
    const mine = Array.from(distinct.values(), (plan) => {
      const inputs = inputsOf(plan, taskId, platform);
      return { plan, inputs, digest: inputsDigest(inputs.folder, inputs.settings) };
    });
    const conflict = mine.find(({ plan, digest }) => (found.get(plan.name)?.build.inputsDigest ?? digest) !== digest);
    if (conflict !== undefined) {
      const winner = found.get(conflict.plan.name)!;
      const differences = inputDifferences(winner.inputs, conflict.inputs).join("; ");
      refused[taskId] = `${conflict.plan.place}/ has the same context hash (${conflict.plan.name}) as that of ` +
        `${winner.inputs.owner}, and is not the same: ${differences}`;
      continue;
    }
    for (const { plan, inputs, digest } of mine) {
      const known = found.get(plan.name);
      const build = known?.build ?? { ...plan, inputsDigest: digest, tasks: [], forcedTasks: [] };
      build.tasks.push(taskId);
      if (plan.forced) build.forcedTasks.push(taskId);
      build.timeoutSec = Math.max(build.timeoutSec, plan.timeoutSec);
      if (known === undefined) found.set(plan.name, { build, inputs });
    }
  }
  return { builds: [...found.values()].map(({ build }) => build), refused };
}
