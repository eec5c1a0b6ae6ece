/**
 * What node has no call for, done by GNU tar from a small archive that we write: whiteouts (character devices 0/0), marks
 * of opaque folders (`user.overlay.opaque`), FIFOs, extended attributes. Whiteouts and `user.` attributes need no
 * rights; capabilities of programs do, which a user has in a namespace of his own (`unshare -Ur`), as version 3.
 */
import { closeSync, fstatSync, openSync, readSync } from "node:fs";
import { Buffer } from "node:buffer";
import type { Writable } from "node:stream";
import { HarborError } from "../errors.ts";
import type { Runner } from "../runtime/runner.ts";
import { thisUid } from "../runtime/user.ts";
import { decisiveLine } from "../sandbox/failure.ts";
import { modeUnder, type OwnerMap, ownerOf } from "./owners.ts";
import { bytesOfPath, nameIn, shown, systemPath } from "./paths.ts";
import { END_OF_ARCHIVE, headerBlocks, padding, type TarHeader } from "./tar_header.ts";
import type { Extras } from "./writer.ts";

export const OPAQUE = "user.overlay.opaque";
const CAPABILITY = "security.capability";

export interface ExtrasOptions {
  owners: OwnerMap;
  runner: Runner;
  signal: AbortSignal;
  what: string;
}

export const isEmpty = ({ whiteouts, opaque, fifos, attributed }: Extras): boolean =>
  whiteouts.length + opaque.length + fifos.length + attributed.size === 0;

/**
 * Adds the extras to the tree in `root`. Throws HarborError "machine.lacks" when this machine or its disk cannot hold
 * them: the image then needs a flat tree.
 */
export async function applyExtras(root: string, extras: Extras, options: ExtrasOptions): Promise<void> {
  const { owners, runner, signal, what } = options;
  const hasCapabilities = [...extras.attributed.values()].some(({ xattrs }) => CAPABILITY in xattrs);
  const inOwnNamespace = thisUid() !== 0 && hasCapabilities ? ["unshare", "--user", "--map-root-user"] : [];
  const argv = [
    ...inOwnNamespace,
    "tar",
    "--extract",
    "--file=-",
    `--directory=${root}`,
    "--preserve-permissions",
    "--xattrs",
    "--xattrs-include=*",
    "--numeric-owner",
    thisUid() === 0 ? "--same-owner" : "--no-same-owner",
  ];
  const result = await runner.run(argv, {
    signal,
    env: { PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL: "C" },
    stdin: (to) => writeExtras(to, root, extras, owners),
  });
  signal.throwIfAborted();
  // A refused attribute is only a warning to tar.
  const complaint = /extended attribute|Cannot|not supported/i.test(result.stderr);
  if (result.ended === "exit" && result.exitCode === 0 && !complaint) return;
  throw new HarborError(
    "machine.lacks",
    `${what}: tar could not add whiteouts or attributes: ${decisiveLine(result.stderr)}`,
    {
      hint:
        "the disk of --unpack-dir must hold user.* attributes (ext4, xfs, btrfs; tmpfs since Linux 6.6), and tar must be GNU's",
      details: { stderr: result.stderr.slice(-2000), exitCode: result.exitCode },
    },
  );
}

async function writeExtras(to: Writable, root: string, extras: Extras, owners: OwnerMap): Promise<void> {
  const put = async (bytes: Buffer): Promise<void> => {
    if (!to.write(bytes)) await room(to);
  };
  const owned = (header: TarHeader) => ({
    ...header,
    mode: modeUnder(owners, header.mode, header.uid, header.gid),
    uid: ownerOf(owners, header.uid) ?? 0,
    gid: ownerOf(owners, header.gid) ?? 0,
    xattrs: underMap(header.xattrs, owners),
  });
  for (const [path, header] of extras.attributed) {
    const name = path === "" ? "." : path;
    if (header.type === "5") {
      await put(headerBlocks({ ...owned(header), name: `${name}/`, mode: header.mode | 0o700 }));
      continue;
    }
    await putFile(put, `${bytesOfPath(root)}/${path}`, { ...owned(header), name });
  }
  // tar makes a file with attributes anew: its other names follow.
  for (const [path, linkname] of extras.hardLinks) {
    if (extras.attributed.has(linkname)) await put(headerBlocks({ name: path, type: "1", linkname }));
  }
  for (const path of extras.opaque) {
    const known = extras.attributed.get(path);
    const xattrs = { ...(known && underMap(known.xattrs, owners)), [OPAQUE]: "y" };
    await put(headerBlocks({ name: path === "" ? "./" : `${path}/`, type: "5", mode: 0o755, xattrs }));
  }
  for (const { path, ...header } of extras.fifos) await put(headerBlocks({ ...owned(header), name: path }));
  for (const path of extras.whiteouts) await put(headerBlocks({ name: path, type: "3", mode: 0 }));
  await put(END_OF_ARCHIVE);
}

/** A file as it lies there already; tar must write content where it sets attributes. */
async function putFile(put: (bytes: Buffer) => Promise<void>, path: string, header: TarHeader): Promise<void> {
  const file = openSync(systemPath(path) as string, "r");
  try {
    const { size } = fstatSync(file);
    await put(headerBlocks({ ...header, size }));
    for (let at = 0; at < size;) {
      const chunk = Buffer.allocUnsafe(Math.min(1 << 20, size - at));
      const got = readSync(file, chunk, 0, chunk.length, at);
      if (got === 0) throw new Error(`${shown(nameIn(path))} became shorter`);
      at += got;
      await put(chunk.subarray(0, got));
    }
    await put(padding(size));
  } finally {
    closeSync(file);
  }
}

/** Resolves when there is room, or when tar has left: what it said then tells more than the broken pipe. */
const room = (to: Writable): Promise<void> =>
  new Promise((resolve) => {
    to.once("drain", resolve);
    to.once("close", resolve);
    to.once("error", () => resolve());
  });

/**
 * A capability of version 2 holds in the namespace that it is set from. Root, who writes for a shifted namespace, names
 * that one's root in version 3 (vfs_ns_cap_data of linux/capability.h).
 */
function underMap(xattrs: Record<string, string>, owners: OwnerMap): Record<string, string> {
  const value = xattrs[CAPABILITY];
  if (value === undefined || owners.kind !== "shift" || owners.start === 0) return xattrs;
  const bytes = Buffer.from(value, "latin1");
  if (bytes.length < 20) return xattrs;
  const flags = bytes.readUInt32LE(0) & 0x00ffffff;
  const version3 = Buffer.alloc(24);
  bytes.copy(version3, 0, 0, 20);
  version3.writeUInt32LE(0x03000000 | flags, 0);
  version3.writeUInt32LE(owners.start, 20);
  return { ...xattrs, [CAPABILITY]: version3.toString("latin1") };
}
