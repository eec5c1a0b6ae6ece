/** Builds on disk for tests that do not test planning. */
import type { BuildPlan } from "../../lib/images/plan.ts";
import { type Files, type TempFolder, writeFiles } from "./tasks.ts";

/** The plan of `folder/id/environment`, whose hash is made up. */
export function buildPlanOf(
  folder: TempFolder,
  id: string,
  hash: string,
  files: Files = {},
  more: Partial<BuildPlan> = {},
): BuildPlan {
  const context = folder.join(id, "environment");
  writeFiles(context, { Dockerfile: "FROM x\nCOPY a /a\n", a: "a", ...files });
  return {
    hash,
    service: "main",
    name: `hb__${hash}`,
    place: "environment",
    context,
    dockerfile: { path: `${context}/Dockerfile` },
    heredocs: false,
    args: {},
    timeoutSec: 600,
    reason: "COPY",
    forced: false,
    ...more,
  };
}
