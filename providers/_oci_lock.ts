/** One process at a time for work on one image or on the networks of an engine, where `sandbox gc` finds the lock. */
import { createHash } from "node:crypto";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { errno, HarborError } from "../lib/errors.ts";
import { type FileLock, lockFile } from "../lib/files/lock.ts";
import { LOCK_SUFFIX, scratchRoot } from "../lib/sandbox/scratch.ts";
import type { SandboxDeps } from "./_oci_deps.ts";

export interface Waiting {
  waitMs: number;
  signal: AbortSignal;
  /** What its holder does, for whoever waits: `loads an image`. */
  doing: string;
}

/** Beside the runs' folders; `what` is part of the file's name. Throws "store.locked" when `waitMs` is over. */
export async function engineLock(
  { program, env, clock, emit }: SandboxDeps,
  what: string,
  { waitMs, signal, doing }: Waiting,
): Promise<FileLock> {
  const where = [program.engine, env.DOCKER_HOST, env.DOCKER_CONTEXT, env.CONTAINER_HOST, env.CONTAINERS_STORAGE_CONF];
  const address = createHash("sha256").update(where.join("\n")).digest("hex").slice(0, 8);
  const root = scratchRoot(env);
  const onWait = (holder: string) => emit({ kind: "note", text: `waiting for ${holder}, which ${doing}` });
  for (let attempt = 0;; attempt++) {
    mkdirSync(root, { recursive: true, mode: 0o700 });
    try {
      return await lockFile(join(root, `${what}-${address}${LOCK_SUFFIX}`), { clock, waitMs, signal, onWait });
    } catch (error) {
      // The end of another run took the folder along while it was empty.
      if (!(error instanceof HarborError) || errno(error.cause) !== "ENOENT" || attempt === 20) throw error;
    }
  }
}
