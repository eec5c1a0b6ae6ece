/**
 * Where a Compose file's variables get their values (spec/images-and-sandboxes §6.2): Harbor's own, then the task's
 * `[environment].env`, then this machine's environment, then environment/.env. Pure; what was missing and what was taken
 * from this machine is kept.
 */
import { isSecretName } from "../secrets.ts";
import { template } from "../task/env.ts";
import type { Task } from "../task/task.ts";
import type { Lookup } from "./interpolate.ts";

type Environment = Readonly<Record<string, string | undefined>>;

/** Harbor's infrastructure variables; paths on the host stand for the folders inside. */
export function infrastructure(
  task: Pick<Task, "folder" | "environment">,
  taskImage: string,
): Record<string, string> {
  const { docker_image = "", cpus, memory_mb } = task.environment;
  const logs = (name: string, folder: string) => ({ [`HOST_${name}_PATH`]: folder, [`ENV_${name}_PATH`]: folder });
  return {
    MAIN_IMAGE_NAME: taskImage,
    PREBUILT_IMAGE_NAME: docker_image,
    CONTEXT_DIR: `${task.folder}/environment`,
    TEST_DIR: "/tests",
    ...logs("VERIFIER_LOGS", "/logs/verifier"),
    ...logs("AGENT_LOGS", "/logs/agent"),
    ...logs("ARTIFACTS", "/logs/artifacts"),
    CPUS: cpus === undefined ? "" : String(cpus),
    MEMORY: memory_mb === undefined ? "" : `${memory_mb}M`,
  };
}

export class Variables implements Lookup {
  /** Names that were wanted and are set nowhere, in order. */
  readonly unset = new Set<string>();
  /** What came from this machine, by its name there. */
  readonly taken: Record<string, string> = {};

  constructor(
    private readonly own: Readonly<Record<string, string>>,
    private readonly taskEnv: Readonly<Record<string, string>>,
    private readonly host: Environment,
    /** environment/.env; filled once it has been read, since it may use the others. */
    readonly file = new Map<string, string | null>(),
  ) {}

  get(name: string): string | undefined {
    return own(this.own, name) ?? this.#ofTask(name) ?? this.#ofHost(name) ?? this.file.get(name) ?? undefined;
  }

  missing(name: string): void {
    this.unset.add(name);
  }

  /** What must stand in no message: what was taken from this machine, and what .env calls secret. */
  secrets(): Record<string, string> {
    const ofFile = [...this.file].filter(([name, value]) => value !== null && isSecretName(name)) as [string, string][];
    return { ...Object.fromEntries(ofFile), ...this.taken };
  }

  #ofTask(name: string): string | undefined {
    const value = own(this.taskEnv, name);
    const host = value === undefined ? undefined : template(value);
    return host === undefined ? value : this.#ofHost(host.name) ?? host.fallback;
  }

  #ofHost(name: string): string | undefined {
    const value = own(this.host, name);
    if (value !== undefined) this.taken[name] = value;
    return value;
  }
}

const own = <T>(table: Readonly<Record<string, T>>, name: string): T | undefined =>
  Object.hasOwn(table, name) ? table[name] : undefined;
