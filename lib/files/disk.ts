/** What kind of file system a folder lies on, and how much room it has. */
import { statfsSync } from "node:fs";
import { dirname } from "node:path";
import { errno } from "../errors.ts";

/** Magic numbers of statfs(2): file systems of other machines, where ownership, xattrs or overlays do not work. */
const NETWORKED: Record<number, string> = {
  0x6969: "NFS",
  0x0bd00bd0: "Lustre",
  0x47504653: "GPFS",
  0xff534d42: "CIFS",
  0x517b: "SMB",
  0xfe534d42: "SMB2",
  0x19830326: "BeeGFS",
  0x00c36400: "Ceph",
  0xaad7aaea: "PanFS",
  0x013111a8: "WekaFS",
  0x5346414f: "AFS",
  0x01021997: "9p",
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
