/**
 * The mounts of a sandbox as one fstab, for one `mount --fstab FILE -a` (25 single `mount` calls cost 40 ms more). Pure.
 *
 * The empty root folder with its links, devices' places and mount points is the same for all sandboxes of a run: it is
 * made once (planSkeleton) and lies below each one's writes. A sandbox's own folder `base` holds `tree/{root,up,wk}`:
 * where the root is mounted, the writes, overlay's work folders. The control folder lies elsewhere and is visible inside
 * at CONTROL, read-only. Overlay options are relative to `base` where they can be, from where `mount` runs: they end at
 * 4,096 bytes and know no quoting, paths of users do.
 *
 * Kernel facts (6.18, util-linux 2.38): `userxattr` makes overlays work for a plain user (5.11; tmpfs uppers 6.6); a
 * user namespace may mount sysfs only with its own network namespace, devpts with gid=5 only where gid 5 is mapped.
 */

/** Where the control folder is visible inside: a bind that is read-only, for root only. */
export const CONTROL = "/.gym-harbor";

export const DEVICES: readonly string[] = ["null", "zero", "full", "random", "urandom", "tty"];

/** Links in /dev, absolute path → target. */
export const DEVICE_LINKS: readonly [path: string, target: string][] = [
  ["/dev/fd", "/proc/self/fd"],
  ["/dev/stdin", "/proc/self/fd/0"],
  ["/dev/stdout", "/proc/self/fd/1"],
  ["/dev/stderr", "/proc/self/fd/2"],
  ["/dev/ptmx", "pts/ptmx"],
];

/** What Docker 20.10 makes read-only and masks (its default OCI spec). */
const PROC_READ_ONLY = ["bus", "fs", "irq", "sys", "sysrq-trigger"];
const PROC_MASKED = [
  "acpi",
  "asound",
  "interrupts",
  "kcore",
  "keys",
  "latency_stats",
  "sched_debug",
  "scsi",
  "timer_list",
  "timer_stats",
];
/** Of a sysfs of one's own, which holds no other mounts (cgroups, debugfs, tracefs lie over the machine's). */
const SYS_MASKED = ["/sys/firmware", "/sys/devices/virtual/powercap"];

/** How the sandbox gets what it may write to. */
export type Storage =
  /** Writes go to the run's folder on disk. */
  | "disk"
  /** Writes go to a tmpfs of the sandbox: where the disk's file system cannot hold an overlay's upper folder. */
  | "memory"
  /** The kernel refuses overlays: shown folders are read-only binds. */
  | "read-only";

/** Writes of a sandbox that ended, to lie below those of others: shown folder, or `/` → folder of this machine. */
export type Layer = Readonly<Record<string, string>>;

export interface MountRequest {
  /** Absolute. */
  base: string;
  /** The control folder, absolute. */
  control: string;
  /** Folder of the skeleton, absolute: `root` and an empty folder `none`. */
  skeleton: string;
  storage: Storage;
  /** Absolute folders of this machine to show. */
  folders: readonly string[];
  /** Absolute folders between a shown folder of this machine and the sandbox's writes, topmost first. They exist. */
  lowers(folder: string): string[];
  /** The same for the root folder itself. */
  rootLowers: readonly string[];
  /** Paths to cover where no whiteouts can (storage "read-only"). */
  covered: readonly { path: string; folder: boolean }[];
  sysfs: boolean;
  /** gid 5 is mapped: devpts may give terminals to group tty. */
  ttyGroup: boolean;
  /** Entries of /proc and paths below /sys that exist here, so that nothing absent is mounted over. */
  procEntries: readonly string[];
  sysPaths: readonly string[];
}

export interface SkeletonRequest {
  /** Absolute folders that overlays or binds will stand on. */
  folders: readonly string[];
  /** Links to make, absolute path → target. */
  links: Readonly<Record<string, string>>;
  /** Folders to make anew, parents first, and files of this machine to copy into them. */
  plain: readonly string[];
  copies: readonly string[];
}

/** Paths are absolute inside the sandbox, in the order they are made. */
export interface Skeleton {
  folders: [path: string, mode: number][];
  files: string[];
  links: [path: string, target: string][];
  /** Files of this machine at the same path. */
  copies: readonly string[];
}

export function planSkeleton(request: SkeletonRequest): Skeleton {
  const folders: Skeleton["folders"] = [
    ["/.old", 0o755],
    [CONTROL, 0o755],
    ["/dev", 0o755],
    ["/dev/pts", 0o755],
    ["/dev/shm", 0o755],
    ["/proc", 0o755],
    ["/sys", 0o755],
    ["/root", 0o700],
    ["/home", 0o755],
    ["/tmp", 0o1777],
    ["/run", 0o755],
    ["/run/lock", 0o1777],
    ["/mnt", 0o755],
    ["/srv", 0o755],
  ];
  const inRoot = (path: string): boolean => path.lastIndexOf("/") === 0 || request.plain.includes(parentOf(path));
  for (const folder of [...request.plain, ...request.folders].sort()) {
    if (inRoot(folder)) folders.push([folder, 0o755]);
  }
  if (!request.folders.includes("/var")) {
    if (!request.plain.includes("/var")) folders.push(["/var", 0o755]);
    for (const [name, mode] of VAR_FOLDERS) folders.push([`/var/${name}`, mode]);
  }
  return {
    folders,
    files: DEVICES.map((name) => `/dev/${name}`),
    links: [
      ...Object.entries(request.links),
      ...DEVICE_LINKS,
    ],
    copies: request.copies,
  };
}

/** Hidden on this machine's side, and missed by many programs. */
const VAR_FOLDERS = [["tmp", 0o1777], ["mail", 0o1777], ["spool", 0o755]] as const;

export interface MountPlan {
  fstab: string;
  /** Folders to make below `tree`, in order, with their modes. */
  folders: { path: string; mode: number }[];
  /** Shown folder, or `/` → where its writes go, below `tree`. */
  up: Record<string, string>;
}

export function planMounts(request: MountRequest): MountPlan {
  const { base, skeleton } = request;
  const root = `${base}/tree/root`;
  const lines: string[] = [];
  const up: MountPlan["up"] = {};
  const folders = ["root", "up", "wk"].map((path) => ({ path, mode: 0o755 }));
  const add = (...words: Parameters<typeof fstabLine>) => lines.push(fstabLine(...words));
  const overlay = (folder: string, key: string, lowers: readonly string[]) => {
    up[folder] = `up/${key}`;
    folders.push({ path: `up/${key}`, mode: 0o755 }, { path: `wk/${key}`, mode: 0o755 });
    const options = `nodev,userxattr,lowerdir=${lowers.join(":")},upperdir=tree/up/${key},workdir=tree/wk/${key}`;
    add("overlay", root + (folder === "/" ? "" : folder), "overlay", options);
  };
  const none = `${skeleton}/none`;
  if (request.storage === "read-only") {
    add(root, root, "none", "bind,nodev");
    for (const folder of request.folders) add(folder, root + folder, "none", "bind,ro,nodev");
    for (const { path, folder } of request.covered) {
      if (!request.folders.some((shown) => path.startsWith(shown + "/"))) continue;
      add(folder ? none : "/dev/null", root + path, "none", "bind,ro");
    }
    for (const path of ["/var/tmp", "/var/log", "/var/cache"]) {
      if (request.folders.includes("/var")) add("tmpfs", root + path, "tmpfs", "nosuid,nodev,mode=1777");
    }
  } else {
    overlay("/", "root", [...request.rootLowers, `${skeleton}/root`]);
    for (const [serial, folder] of request.folders.entries()) {
      overlay(folder, `${serial}${folder.replaceAll("/", "-")}`, [...request.lowers(folder), folder]);
    }
    if (up["/var"] !== undefined) {
      for (const [name, mode] of VAR_FOLDERS) folders.push({ path: `${up["/var"]}/${name}`, mode });
    }
  }
  add(request.control, root + CONTROL, "none", "bind,ro,nodev,nosuid");
  lines.push(...kernelMounts({ ...request, root, none }));
  return { fstab: lines.join("\n") + "\n", folders, up };
}

/** One line of fstab(5), fields escaped. */
export function fstabLine(source: string, target: string, type: string, options: string): string {
  return [source, target, type, options].map(fstabWord).join(" ") + " 0 0";
}

export interface KernelMounts {
  /** Where the sandbox's root folder is mounted, absolute. */
  root: string;
  /** An empty folder, absolute. */
  none: string;
  sysfs: boolean;
  ttyGroup: boolean;
  /** Room of /dev/shm; undefined: half of this machine's memory, as for any tmpfs. */
  shmBytes?: number;
  procEntries: readonly string[];
  sysPaths: readonly string[];
}

/** Devices, /proc and /sys with what of them is masked or read-only. */
export function kernelMounts(request: KernelMounts): string[] {
  const { root, none } = request;
  const lines: string[] = [];
  const add = (...words: Parameters<typeof fstabLine>) => lines.push(fstabLine(...words));
  for (const name of DEVICES) add(`/dev/${name}`, `${root}/dev/${name}`, "none", "bind");
  const size = request.shmBytes === undefined ? "" : `,size=${request.shmBytes}`;
  add("tmpfs", `${root}/dev/shm`, "tmpfs", `nosuid,nodev,mode=1777${size}`);
  const tty = request.ttyGroup ? ",gid=5" : "";
  add("devpts", `${root}/dev/pts`, "devpts", `newinstance,ptmxmode=0666,mode=620,nosuid,noexec${tty}`);
  add("proc", `${root}/proc`, "proc", "nosuid,nodev,noexec");
  for (const name of PROC_READ_ONLY.filter((name) => request.procEntries.includes(name))) {
    add(`${root}/proc/${name}`, `${root}/proc/${name}`, "none", "bind,ro,nosuid,nodev,noexec");
  }
  for (const name of PROC_MASKED.filter((name) => request.procEntries.includes(name))) {
    const isFolder = name === "acpi" || name === "asound" || name === "scsi";
    add(isFolder ? none : "/dev/null", `${root}/proc/${name}`, "none", isFolder ? "bind,ro" : "bind");
  }
  if (request.sysfs) {
    add("sysfs", `${root}/sys`, "sysfs", "ro,nosuid,nodev,noexec");
    for (const path of SYS_MASKED.filter((path) => request.sysPaths.includes(path))) {
      add(none, root + path, "none", "bind,ro");
    }
  }
  return lines;
}

const parentOf = (path: string): string => path.slice(0, path.lastIndexOf("/")) || "/";

/** fstab(5): white space, `#` and backslash are octal escapes. */
function fstabWord(word: string): string {
  return word.replace(/[\\\s#]/g, (char) => `\\${char.charCodeAt(0).toString(8).padStart(3, "0")}`);
}

export const SYS_CANDIDATES: readonly string[] = SYS_MASKED;
