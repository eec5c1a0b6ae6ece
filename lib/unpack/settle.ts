/** Owner, mode and time of what was made, in this order: a change of owner takes set-uid bits off. */
import {
  chmodSync,
  chownSync,
  fchmodSync,
  fchownSync,
  futimesSync,
  lchownSync,
  lutimesSync,
  type PathLike,
  utimesSync,
} from "node:fs";
import { modeUnder, type OwnerMap, ownerOf } from "./owners.ts";
import type { TarHeader } from "./tar_header.ts";

export type Facts = Pick<TarHeader, "mode" | "uid" | "gid" | "mtime">;

/** The file was opened with the other nine bits of its mode. */
export function settleFile(file: number, { mode, uid, gid, mtime }: Facts, owners: OwnerMap): void {
  const owner = newOwner(owners, uid, gid);
  if (owner !== undefined) fchownSync(file, ...owner);
  if ((mode & 0o7000) !== 0) fchmodSync(file, modeUnder(owners, mode, uid, gid));
  const time = timeOf(mtime);
  futimesSync(file, time, time);
}

export function settleLink(path: PathLike, { uid, gid, mtime }: Facts, owners: OwnerMap): void {
  const owner = newOwner(owners, uid, gid);
  if (owner !== undefined) lchownSync(path, ...owner);
  const time = timeOf(mtime);
  lutimesSync(path, time, time);
}

/** To be called when nothing is made in it any more. */
export function settleFolder(path: PathLike, { mode, uid, gid, mtime }: Facts, owners: OwnerMap): void {
  const owner = newOwner(owners, uid, gid);
  if (owner !== undefined) chownSync(path, ...owner);
  chmodSync(path, modeUnder(owners, mode, uid, gid));
  const time = timeOf(mtime);
  utimesSync(path, time, time);
}

/** Within what ext4 can keep: 1901 to 2446. */
const timeOf = (mtime: number): number => Math.min(Math.max(mtime, -(2 ** 31)), 15_032_385_535);

/** Undefined where it has the right owner from the beginning: all ids are one, or it is root's, who makes it. */
function newOwner(owners: OwnerMap, uid: number, gid: number): [owner: number, group: number] | undefined {
  const owner = ownerOf(owners, uid);
  const group = ownerOf(owners, gid);
  return owner === undefined || group === undefined || (owner === 0 && group === 0) ? undefined : [owner, group];
}
