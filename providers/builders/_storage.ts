/** Where builders keep images: the place for buildah's, and how much room a build must find. */
import { lstatSync, mkdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { errno, HarborError } from "../../lib/errors.ts";
import { thisUser } from "../../lib/runtime/user.ts";

type Env = Readonly<Record<string, string | undefined>>;

/** What a build must find free at least, where images are kept: less is used up by any base image. */
export const NEEDED_BYTES = 256 * 1024 ** 2;

/**
 * buildah's storage (spec §4.5): what the user named, else the place that NeMo Gym uses, on a disk of this machine. A
 * folder of that name that belongs to somebody else is left to them.
 */
export function buildahPlace(env: Env, given: string | undefined): string {
  if (given !== undefined) return given;
  const { name, uid } = thisUser();
  const scratch = "/raid/scratch";
  const place = isFolder(scratch)
    ? join(scratch, name, "nemo-gym-buildah")
    : join(env.TMPDIR || tmpdir(), "nemo-gym-buildah");
  return isOurs(place, uid) ? place : `${place}-${uid}`;
}

/** Throws "machine.lacks" when the folder cannot be made. */
export function makePlace(folder: string): void {
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
  } catch (cause) {
    throw new HarborError("machine.lacks", `buildah cannot keep images in ${folder}: ${errno(cause) ?? cause}`, {
      cause,
      hint: "name a folder on a local disk that you may write: ++builds.storage_dir=DIR",
    });
  }
}

const isFolder = (path: string): boolean => lstatSync(path, { throwIfNoEntry: false })?.isDirectory() === true;

function isOurs(path: string, uid: number): boolean {
  const found = lstatSync(path, { throwIfNoEntry: false });
  return found === undefined || (found.isDirectory() && found.uid === uid);
}
