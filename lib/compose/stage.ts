/**
 * What a Compose file binds, as copies: a service never sees the task's own folder, and what one episode writes no other
 * one reads (spec/images-and-sandboxes §6.4.1). Read-only binds share the run's copy; writable ones get their own.
 */
import { join } from "node:path";
import { crossing } from "../errors.ts";
import { copyForAll } from "../files/copy.ts";
import type { ServiceMount } from "../sandbox/group.ts";
import type { PlannedMount } from "./plan.ts";

/** Mounts of a service with copies in place. `copies`: the run's copy of what the task mounts; `folder`: the episode's own. */
export async function stageMounts(
  mounts: readonly PlannedMount[],
  copies: string | null,
  folder: string,
): Promise<ServiceMount[]> {
  const staged: ServiceMount[] = [];
  for (const [index, mount] of mounts.entries()) {
    if (mount.kind !== "bind") {
      staged.push(mount);
      continue;
    }
    const source = join(copies!, mount.source);
    if (mount.readOnly) {
      staged.push({ ...mount, source });
      continue;
    }
    // The last part of the name stays: an engine mounts a file as a file.
    const own = join(folder, String(index), mount.source.split("/").at(-1)!);
    await crossing(
      "machine.lacks",
      `Cannot copy ${mount.source} to ${own}`,
      () => copyForAll(source, own, { writable: true }),
    );
    staged.push({ ...mount, source: own });
  }
  return staged;
}

/** Paths below the task that a plan binds. */
export const boundPaths = (services: readonly { mounts: readonly PlannedMount[] }[]): string[] =>
  services.flatMap(({ mounts }) => mounts.flatMap((mount) => (mount.kind === "bind" ? [mount.source] : [])));
