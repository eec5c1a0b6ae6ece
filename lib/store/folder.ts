/** Where our own image store lies: asked for, else the user's cache, else a private folder below the temp folder. */
import { accessSync, constants, lstatSync, mkdirSync } from "node:fs";
import { dirname, isAbsolute, join, resolve } from "node:path";
import { errno, HarborError } from "../errors.ts";
import { reasonOf } from "../files/reason.ts";
import { thisUid } from "../runtime/user.ts";
import { scratchRoot } from "../sandbox/scratch.ts";

type Env = Readonly<Record<string, string | undefined>>;

/**
 * Absolute folder of the store: `option` (`--image-store`), `$XDG_CACHE_HOME/gym-harbor/images`,
 * `~/.cache/gym-harbor/images`, `$TMPDIR/gym-harbor-<uid>/images`. A cache that is named but can be neither read nor made
 * (no HOME on a compute node, a read-only one) is passed over. Throws "machine.lacks" when the folder below TMPDIR is
 * somebody else's.
 */
export function storeFolder(env: Env, option?: string): string {
  if (option !== undefined && option !== "") return resolve(option);
  return cacheFolder(env, "images");
}

/** A folder of ours in the user's cache, by the same order; only the one below TMPDIR is made here. */
export function cacheFolder(env: Env, name: string): string {
  const caches = [env.XDG_CACHE_HOME, env.HOME && join(env.HOME, ".cache")];
  const usable = caches.find((cache) => cache && isAbsolute(cache) && canHold(join(cache, "gym-harbor", name)));
  return usable ? join(usable, "gym-harbor", name) : localFolder(env, name);
}

/** Whether the folder is there and readable, or could be made. */
export function canHold(folder: string): boolean {
  for (
    let at = folder, mode = constants.R_OK | constants.X_OK;;
    at = dirname(at), mode = constants.W_OK | constants.X_OK
  ) {
    try {
      accessSync(at, mode);
      return true;
    } catch (error) {
      if (errno(error) !== "ENOENT" || at === dirname(at)) return false;
    }
  }
}

/** Folder `name` of ours below TMPDIR, for what must be on a disk of this machine. Throws like storeFolder(). */
export const localFolder = (env: Env, name: string): string => join(privateRoot(scratchRoot(env)), name);

/** TMPDIR is everybody's: a folder of that name which another user made would feed us images of theirs. */
function privateRoot(root: string): string {
  const doing = `Cannot keep images in ${root}`;
  const hint = "name a folder of your own: --image-store DIR, or set XDG_CACHE_HOME";
  try {
    mkdirSync(root, { recursive: true, mode: 0o700 });
  } catch (cause) {
    throw new HarborError("machine.lacks", `${doing}: ${reasonOf(cause)}`, { cause, hint });
  }
  const found = lstatSync(root);
  if (!found.isDirectory() || found.uid !== thisUid() || (found.mode & 0o022) !== 0) {
    throw new HarborError("machine.lacks", `${doing}: it is not a folder of ours alone`, { hint });
  }
  return root;
}
