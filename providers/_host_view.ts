/**
 * What of this machine a sandbox may see. Pure: facts about the root folder and the mount table go in, a view comes out.
 *
 * Shown are the folders programs live in (`SHOWN`), each through an overlay of its own, with symbolic links such as
 * `/bin -> usr/bin` copied as links. Everything else is absent: homes, /srv, /boot, /mnt, data folders of this machine.
 * What lies on a network file system is never shown, except where the programs themselves do (a diskless node).
 */

/** Top-level folders that hold programs and their settings. Others are absent inside. */
export const SHOWN = ["bin", "etc", "gnu", "lib", "lib32", "lib64", "libx32", "nix", "opt", "sbin", "usr", "var"];

/** File systems that reach other machines or other people's data, by the kernel's type name; `fuse.*` counts too. */
const NETWORK_TYPES = new Set(
  ("nfs nfs4 cifs smb3 smbfs lustre gpfs beegfs ceph glusterfs afs 9p virtiofs orangefs pvfs2 panfs wekafs autofs " +
    "cvmfs2 ocfs2 gfs2 daos dvs").split(" "),
);

/** File systems of a disk of this machine, which may be mounted below a shown folder and belong to it. */
const DISK_TYPES = new Set("ext2 ext3 ext4 xfs btrfs f2fs zfs bcachefs jfs squashfs erofs".split(" "));

export interface Mount {
  at: string;
  type: string;
}

export interface RootEntry {
  name: string;
  /** Target when the entry is a symbolic link. */
  link?: string;
}

export interface HostView {
  /** Absolute folders to show through an overlay, parents first. */
  folders: string[];
  /** Links to copy, absolute path → target. */
  links: Record<string, string>;
  /** What was left out because it lies on a network file system. */
  network: string[];
  /** Folders that could not be shown as one and are made anew, parents first; what lies in them is shown piece by piece. */
  plain: string[];
  /** Small files in those, to copy. */
  files: string[];
}

/** Mount points and types of /proc/self/mountinfo (proc(5)), the last one over a point winning. */
export function parseMounts(mountinfo: string): Mount[] {
  const mounts = new Map<string, string>();
  for (const line of mountinfo.split("\n")) {
    const [before, after] = line.split(" - ");
    const at = before?.split(" ")[4];
    const type = after?.split(" ")[0];
    if (at === undefined || type === undefined) continue;
    mounts.set(at.replace(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(parseInt(octal, 8))), type);
  }
  return [...mounts].map(([at, type]) => ({ at, type }));
}

const reachesOut = (type: string): boolean => NETWORK_TYPES.has(type) || type.startsWith("fuse");

/** Decides what is shown. `isHidden`: paths whose mounts come and go with engines and are never shown. */
export function viewOf(
  root: readonly RootEntry[],
  mounts: readonly Mount[],
  isHidden: (path: string) => boolean = () => false,
): HostView {
  const types = new Map(mounts.map((mount) => [mount.at, mount.type]));
  const view: HostView = { folders: [], links: {}, network: [], plain: [], files: [] };
  for (const { name, link } of root) {
    if (!SHOWN.includes(name)) continue;
    const type = types.get(`/${name}`);
    if (link !== undefined) view.links[`/${name}`] = link;
    // Programs themselves may come over the network; /opt and /var of such a node are other people's data.
    else if (type !== undefined && reachesOut(type) && (name === "opt" || name === "var")) {
      view.network.push(`/${name}`);
    } else view.folders.push(`/${name}`);
  }
  for (const { at, type } of [...mounts].sort((a, b) => (a.at < b.at ? -1 : 1))) {
    const holder = view.folders.find((folder) => at.startsWith(folder + "/"));
    if (holder === undefined || isHidden(at)) continue;
    if (DISK_TYPES.has(type)) view.folders.push(at); // an overlay shows one file system only: what is mounted below needs its own
    else if (reachesOut(type)) view.network.push(at);
  }
  view.folders.sort();
  return view;
}

export interface Child {
  name: string;
  kind: "folder" | "file" | "link";
  target?: string;
}

/**
 * In a user namespace an overlay may not stand on a folder that has mounts below it: they are locked, and showing what
 * lies under them would reveal it (has_locked_children, Linux 6.18). Such a folder is taken apart down to the pieces
 * that have none; what is mounted there stays absent.
 */
export function takeApart(
  view: HostView,
  mounts: readonly Mount[],
  list: (folder: string) => Child[],
  isHidden: (path: string) => boolean,
): HostView {
  const points = mounts.map(({ at }) => at);
  const apart: HostView = { ...view, folders: [], plain: [], files: [], links: { ...view.links } };
  const show = (folder: string) => {
    if (!points.some((at) => at.startsWith(folder + "/"))) return void apart.folders.push(folder);
    apart.plain.push(folder);
    for (const { name, kind, target } of list(folder)) {
      const path = `${folder}/${name}`;
      if (isHidden(path) || points.includes(path)) continue;
      if (kind === "link") apart.links[path] = target!;
      else if (kind === "file") apart.files.push(path);
      else show(path);
    }
  };
  // A mount of its own below a shown folder comes along with that folder's pieces no more.
  for (const folder of view.folders) {
    if (!view.folders.some((other) => folder.startsWith(other + "/"))) show(folder);
  }
  apart.folders.sort();
  return apart;
}
