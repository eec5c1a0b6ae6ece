/** Where builders keep images: the place for buildah's, what lies below it, and how much room is left. */
import { lstatSync, mkdirSync, statfsSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { errno, HarborError } from "../../lib/errors.ts";
import { thisUser } from "../../lib/runtime/user.ts";

type Env = Readonly<Record<string, string | undefined>>;

/** What a build must find free at least, where images are kept: less is used up by any base image. */
export const NEEDED_BYTES = 256 * 1024 ** 2;

/** Magic numbers of statfs(2) (statfs(2) manual; Lustre and GPFS by their headers). */
const NETWORKED: Record<number, string> = {
  0x6969: "NFS",
  0x0bd00bd0: "Lustre",
  0x47504653: "GPFS",
  0xff534d42: "CIFS",
  0x517b: "SMB",
  0xfe534d42: "SMB2",
  0x19830326: "BeeGFS",
  0x00c36400: "Ceph",
};

/** Name of a network file system by its magic number; undefined for a disk of this machine. */
export const networkFileSystem = (type: number): string | undefined => NETWORKED[type >>> 0];

export interface Space {
  freeBytes: number;
  /** Name of the network file system it lies on. */
  network?: string;
}

/** Of `folder`, or of the nearest folder above that is there; undefined where it cannot be looked at. */
export function spaceAt(folder: string): Space | undefined {
  for (let at = folder;; at = dirname(at)) {
    try {
      const { type, bavail, bsize } = statfsSync(at);
      const network = networkFileSystem(type);
      return { freeBytes: bavail * bsize, ...(network !== undefined && { network }) };
    } catch (error) {
      if (errno(error) !== "ENOENT" || at === dirname(at)) return undefined;
    }
  }
}

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
