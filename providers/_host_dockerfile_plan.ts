/**
 * What a single-stage Dockerfile amounts to with this machine as its base: its own image is not used, and RUN lines that
 * only install packages are left out or not, as the run says.
 */
import { HarborError } from "../lib/errors.ts";
import { parseDockerfile } from "../lib/task/dockerfile.ts";
import { stagesOf } from "../lib/task/dockerfile_stages.ts";
import { BuildContext } from "./_build_context.ts";
import { planStage, type Step, unsupported } from "./_build_plan.ts";
import { withoutInstalls } from "./_host_installs.ts";
import { PATH } from "./_namespace_machine.ts";

export interface HostPlan {
  steps: Step[];
  workdir: string;
  env: Record<string, string>;
  user: string;
  entrypoint: string[];
  notes: string[];
}

export interface PlanRequest {
  taskId: string;
  text: string;
  /** Absolute folder of the build context. */
  context: string;
  run: "all" | "no-install" | "skip";
}

const ON = "--sandbox host";

/** Throws "task.unsupported" naming the instruction, "image.failed" for a source that is not in the context. */
export function planDockerfile({ taskId, text, context, run }: PlanRequest): HostPlan {
  refuseBeforeFrom(taskId, text);
  const { stages, escape } = stagesOf(text, { baseEnv: () => ({ PATH }) });
  const [stage, second] = stages;
  if (stage === undefined) throw new HarborError("task.unsupported", `${taskId}: its Dockerfile has no FROM`);
  if (second !== undefined) throw unsupported({ taskId, on: ON }, second.from.line, "a build of several stages");
  const notes = [`image: FROM ${stage.from.rest.split(/\s+/)[0]} is not used, this machine is the base`];
  const { steps, settings } = planStage({
    taskId,
    on: ON,
    stage,
    escape,
    context: new BuildContext(context),
    base: { workdir: "/", user: "", env: { PATH } },
    stages: false,
    judgeRun(command, { line }) {
      if (run === "skip") {
        notes.push(`image: RUN of line ${line} is left out (sandbox.host.run=skip)`);
        return undefined;
      }
      if (run === "all") return command;
      const { rest, left } = withoutInstalls(command);
      if (left.length > 0) notes.push(`image: line ${line} installs, left out: ${left.join("; ")}`);
      return rest === "" ? undefined : rest;
    },
  });
  if (settings.healthcheck !== undefined && JSON.stringify(settings.healthcheck) !== NO_HEALTHCHECK) {
    notes.push("image: HEALTHCHECK is not run");
  }
  const { workdir, env, user, entrypoint = [] } = settings;
  return { steps, workdir, env, user, entrypoint, notes };
}

const NO_HEALTHCHECK = JSON.stringify({ Test: ["NONE"] });

function refuseBeforeFrom(taskId: string, text: string): void {
  const first = parseDockerfile(text).instructions.find(({ name }) => name !== "ARG");
  if (first !== undefined && first.name !== "FROM") {
    throw unsupported({ taskId, on: ON }, first.line, "an instruction before FROM");
  }
}
