/** One process at a time for work on one image of one engine: beside the runs' folders, where `sandbox gc` finds it. */
import { createHash } from "node:crypto";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { Emit } from "../lib/events.ts";
import { type FileLock, lockFile } from "../lib/files/lock.ts";
import { LOCK_SUFFIX, scratchRoot } from "../lib/sandbox/scratch.ts";
import type { SandboxDeps } from "./_oci_deps.ts";

/** `what` is part of a file name. Throws "store.locked" when `waitMs` is over. */
export function engineLock(
  { program, env, clock }: SandboxDeps,
  what: string,
  { waitMs, signal, emit, doing }: { waitMs: number; signal: AbortSignal; emit: Emit; doing: string },
): Promise<FileLock> {
  const where = [program.engine, env.DOCKER_HOST, env.DOCKER_CONTEXT, env.CONTAINER_HOST, env.CONTAINERS_STORAGE_CONF];
  const address = createHash("sha256").update(where.join("\n")).digest("hex").slice(0, 8);
  const root = scratchRoot(env);
  mkdirSync(root, { recursive: true, mode: 0o700 });
  return lockFile(join(root, `${what}-${address}${LOCK_SUFFIX}`), {
    clock,
    waitMs,
    signal,
    onWait: (holder) => emit({ kind: "note", text: `waiting for ${holder}, which ${doing}` }),
  });
}
