/** A group that has been started, from there to its end: what became of its sidecars, and what they printed. */
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { messageOf } from "../errors.ts";
import type { Clock } from "../runtime/clock.ts";
import type { Group, Service } from "../sandbox/group.ts";
import type { Sandbox } from "../sandbox/provider.ts";

/** Bytes kept of a sidecar's output. */
const LOG_BYTES = 16 * 1024 * 1024;
/** What asking after the sidecars at the end may take in all. */
const LAST_LOOK_MS = 30_000;

interface Members {
  main: Sandbox;
  services: ReadonlyMap<string, Service>;
  /** Services whose good end somebody waited for. */
  done: ReadonlySet<string>;
}

/** Disposal ends all members in reverse order and removes what was staged for them. */
export class StartedGroup implements AsyncDisposable {
  constructor(
    private readonly members: Members,
    private readonly group: Group,
    private readonly scratch: string,
    private readonly clock: Clock,
  ) {}

  get main(): Sandbox {
    return this.members.main;
  }

  get services(): ReadonlyMap<string, Service> {
    return this.members.services;
  }

  /** What has become of the sidecars, for the row; their output goes to `<folder>/<name>.log`. Never throws. */
  async lastLook(folder: string): Promise<string[]> {
    const limit = this.clock.deadline(LAST_LOOK_MS);
    const look = async ([name, service]: [string, Service]): Promise<string[]> => {
      try {
        const state = await service.state(limit);
        if (state.state === "running" || (state.exitCode === 0 && this.members.done.has(name))) return [];
        const how = state.exitCode === null ? "" : ` with exit ${state.exitCode}`;
        return [`service '${name}' ended during the episode${how}`];
      } catch (error) {
        return [`service '${name}': its state is not known: ${messageOf(error)}`];
      }
    };
    const notes = await Promise.all([...this.services].map(look));
    return [...notes.flat(), ...await saveLogs(this.services, folder)];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.group[Symbol.asyncDispose]();
    await rm(this.scratch, { recursive: true, force: true });
  }
}

/** Writes every service's output to a file of its name; what cannot be kept is told. Never throws. */
export async function saveLogs(services: ReadonlyMap<string, Service>, folder: string): Promise<string[]> {
  if (services.size === 0) return [];
  const save = async ([name, service]: [string, Service]): Promise<string[]> => {
    try {
      await service.saveLog(join(folder, `${name}.log`), LOG_BYTES);
      return [];
    } catch (error) {
      return [`the log of service '${name}' is not kept: ${messageOf(error)}`];
    }
  };
  try {
    await mkdir(folder, { recursive: true });
  } catch (error) {
    return [`logs of services are not kept: ${messageOf(error)}`];
  }
  return (await Promise.all([...services].map(save))).flat();
}
