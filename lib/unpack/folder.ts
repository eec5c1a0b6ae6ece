/** Where unpacked layers lie: asked for, else beside the store, else on a local disk of this machine. */
import { chmodSync, lstatSync, mkdirSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { HarborError } from "../errors.ts";
import { spaceAt } from "../files/disk.ts";
import { reasonOf } from "../files/reason.ts";
import { thisUid } from "../runtime/user.ts";
import { cacheFolder, canHold, localFolder } from "../store/folder.ts";
import type { ImageStore } from "../store/store.ts";

/**
 * Absolute folder for trees: `option` (`--unpack-dir`); beside the store when that is ours to write and on a local disk;
 * the user's cache, by the same rule; else below TMPDIR. Throws like storeFolder().
 */
export function unpackFolder(
  env: Readonly<Record<string, string | undefined>>,
  option: string | undefined,
  store: Pick<ImageStore, "folder" | "readOnly">,
  typeOf: (folder: string) => string | undefined = (folder) => spaceAt(folder)?.network,
): string {
  if (option !== undefined && option !== "") return resolve(option);
  const cache = cacheFolder(env, "trees");
  const isDefault = store.folder === join(dirname(cache), "images");
  const beside = isDefault ? cache : join(dirname(store.folder), `${basename(store.folder)}-trees`);
  const candidates = store.readOnly ? [cache] : [beside, cache];
  const usable = candidates.find((folder) => typeOf(folder) === undefined && isOurs(folder));
  return usable ?? localFolder(env, "trees");
}

/** Ours already, or ours to make. A folder of another user may hold any files under any names. */
function isOurs(folder: string): boolean {
  const found = lstatSync(folder, { throwIfNoEntry: false });
  return found === undefined ? canHold(folder) : found.isDirectory() && found.uid === thisUid();
}

/** Makes the folder, closed to others: set-uid programs of images lie in it. Throws "machine.lacks" when it is not ours. */
export function makePrivate(folder: string, mode = 0o700): void {
  const hint = "name a folder of your own on a local disk: --unpack-dir DIR";
  try {
    mkdirSync(folder, { recursive: true, mode });
  } catch (cause) {
    throw new HarborError("machine.lacks", `Cannot unpack images into ${folder}: ${reasonOf(cause)}`, { cause, hint });
  }
  const found = lstatSync(folder);
  if (found.isDirectory() && found.uid === thisUid() && (found.mode & 0o022) === 0) {
    // Below a set-gid folder (shared scratch disks) everything would belong to that folder's group.
    if ((found.mode & 0o2000) !== 0) chmodSync(folder, found.mode & 0o777);
    return;
  }
  throw new HarborError("machine.lacks", `Cannot unpack images into ${folder}: it is not a folder of ours alone`, {
    hint,
  });
}
