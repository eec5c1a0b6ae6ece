/**
 * `run_config_<agent>.yaml`: which tasks a run has, under which digests and settings (images §1.4). Pure. Values whose
 * names say that they are secret are masked, since the file is handed around with the rows.
 */
import { stringify } from "yaml";
import type { BuildOptions } from "../images/options.ts";
import type { PlannedTask } from "../episode/plan.ts";
import { isSecretName } from "../secrets.ts";
import { ENVIRONMENT_SERVER } from "./schema.ts";

export interface RunConfigFacts {
  taskset: string;
  taskSource: string;
  /** Absolute dataset folder. */
  folder: string;
  datasetDigest: string;
  agentName: string;
  /** The sandbox that is used, or `auto` where none was needed. */
  sandbox: string;
  /** `harbor_environment_server.…` as given. */
  settings: Readonly<Record<string, unknown>>;
  /** `sandbox.<name>.…` as given. */
  sandboxOptions: Readonly<Record<string, unknown>>;
  /** Settled build options. */
  builds: Partial<Pick<BuildOptions, "tool" | "repository">> & Pick<BuildOptions, "platform">;
  /** Absolute path of a record file → SHA-256 of it as it is now. */
  records: Readonly<Record<string, string>>;
}

export function runConfig(tasks: readonly PlannedTask[], facts: RunConfigFacts): string {
  return stringify({
    tasksets: {
      [facts.taskset]: {
        folder: facts.folder,
        task_source: facts.taskSource,
        dataset_digest: facts.datasetDigest,
        tasks: Object.fromEntries(tasks.map(({ task, digest }) => [task.id, { path: task.relativePath, digest }])),
      },
    },
    [ENVIRONMENT_SERVER]: {
      environment_servers: { harbor: { sandbox_provider: facts.sandbox, ...masked(facts.settings) as object } },
    },
    [facts.agentName]: { responses_api_agents: { [facts.agentName]: {} } },
    builds: {
      tool: facts.builds.tool ?? null,
      repository: facts.builds.repository ?? null,
      platform: facts.builds.platform,
    },
    ...(Object.keys(facts.records).length > 0 && { image_records: facts.records }),
    ...(Object.keys(facts.sandboxOptions).length > 0 && { sandbox: masked(facts.sandboxOptions) }),
  });
}

/** A copy in which what stands under a secret's name is `****`. */
function masked(value: unknown, name = ""): unknown {
  if (Array.isArray(value)) return value.map((one) => masked(one, name));
  if (typeof value !== "object" || value === null) return isSecretName(name) ? "****" : value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, masked(one, key)]));
}
