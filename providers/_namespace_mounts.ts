/**
 * The mounts of a sandbox as one fstab, for one `mount --fstab FILE -a` (25 single `mount` calls cost 40 ms more). Pure.
 *
 * Layout of a sandbox's folder `base`: `tree/{root,up,wk}` (the root folder, the sandbox's writes, overlay's work
 * folders). The control folder lies elsewhere and is visible inside at CONTROL, read-only. Overlay options are relative to `base`,
 * from where `mount` runs: they end at 4,096 bytes and know no quoting, paths of users do.
 *
 * Kernel facts (6.18, util-linux 2.38): `userxattr` makes overlays work for a plain user (5.11; tmpfs uppers 6.6); a
 * user namespace may mount sysfs only with its own network namespace, devpts with gid=5 only where gid 5 is mapped.
 */

/** Where the control folder is visible inside: a bind that is read-only, for root only. */
export const CONTROL = "/.gym-harbor";

const DEVICES = ["null", "zero", "full", "random", "urandom", "tty"];

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

/** Writes of a sandbox that ended, to lie below those of others. */
export interface Layer {
  /** What it wrote outside the shown folders. */
  root: string;
  /** Shown folder → what it wrote there. */
  up: Readonly<Record<string, string>>;
}

export interface MountRequest {
  /** Absolute. */
  base: string;
  /** The control folder, absolute. */
  control: string;
  storage: Storage;
  /** Absolute folders of this machine to show. */
  folders: readonly string[];
  /** Links to make, absolute path → target. */
  links: Readonly<Record<string, string>>;
  /** Folders to make anew, parents first, and files of this machine to copy into them. */
  plain: readonly string[];
  copies: readonly string[];
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

export interface MountPlan {
  fstab: string;
  /** Folders to make below `tree`, in order, with their modes. */
  folders: { path: string; mode: number }[];
  /** Empty files to make below `tree`. */
  files: string[];
  /** Links to make below `tree`: path → target. */
  links: [string, string][];
  /** Files of this machine to copy below `tree`: source, target. */
  copies: [string, string][];
  /** Shown folder → where its writes go, below `tree`. */
  up: Record<string, string>;
}

export function planMounts(request: MountRequest): MountPlan {
  const { base } = request;
  const root = `${base}/tree/root`;
  const lines: string[] = [];
  const up: MountPlan["up"] = {};
  const add = (source: string, target: string, type: string, options: string) =>
    lines.push([source, target, type, options].map(fstabWord).join(" ") + " 0 0");
  const folders: MountPlan["folders"] = [
    { path: "root", mode: 0o755 },
    { path: "up", mode: 0o755 },
    { path: "wk", mode: 0o755 },
    { path: "root/.old", mode: 0o755 },
    { path: `root${CONTROL}`, mode: 0o755 },
    { path: "root/dev", mode: 0o755 },
    { path: "root/dev/pts", mode: 0o755 },
    { path: "root/dev/shm", mode: 0o755 },
    { path: "root/proc", mode: 0o755 },
    { path: "root/sys", mode: 0o755 },
    { path: "root/root", mode: 0o700 },
    { path: "root/home", mode: 0o755 },
    { path: "root/tmp", mode: 0o1777 },
    { path: "root/run", mode: 0o755 },
    { path: "root/run/lock", mode: 0o1777 },
    { path: "root/mnt", mode: 0o755 },
    { path: "root/srv", mode: 0o755 },
  ];
  const links: MountPlan["links"] = Object.entries(request.links).map(([path, target]) => [`root${path}`, target]);
  links.push(
    ["root/dev/fd", "/proc/self/fd"],
    ["root/dev/stdin", "/proc/self/fd/0"],
    ["root/dev/stdout", "/proc/self/fd/1"],
    ["root/dev/stderr", "/proc/self/fd/2"],
    ["root/dev/ptmx", "pts/ptmx"],
  );
  if (request.rootLowers.length === 0) add(root, root, "none", "bind,nodev");
  else {
    folders.push({ path: "up/root", mode: 0o755 }, { path: "wk/root", mode: 0o755 });
    const lower = [...request.rootLowers, "tree/root"].join(":");
    add("overlay", root, "overlay", `nodev,userxattr,lowerdir=${lower},upperdir=tree/up/root,workdir=tree/wk/root`);
  }
  const inTree = (path: string): boolean => path.lastIndexOf("/") === 0 || request.plain.includes(parentOf(path));
  for (const folder of [...request.plain, ...request.folders].sort()) {
    if (inTree(folder)) folders.push({ path: `root${folder}`, mode: 0o755 });
  }
  for (const [serial, folder] of request.folders.entries()) {
    if (request.storage === "read-only") {
      add(folder, root + folder, "none", "bind,ro,nodev");
      continue;
    }
    const key = `${serial}${folder.replaceAll("/", "-")}`;
    up[folder] = `up/${key}`;
    folders.push({ path: `up/${key}`, mode: 0o755 }, { path: `wk/${key}`, mode: 0o755 });
    const lower = [...request.lowers(folder), folder];
    const options = `nodev,userxattr,lowerdir=${lower.join(":")},upperdir=tree/up/${key},workdir=tree/wk/${key}`;
    add("overlay", root + folder, "overlay", options);
  }
  // Hidden on this machine's side, and missed by many programs.
  const varFolder = request.storage === "read-only"
    ? undefined
    : folders.find(({ path }) => /^up\/\d+-var$/.test(path))?.path;
  for (const [name, mode] of [["tmp", 0o1777], ["mail", 0o1777], ["spool", 0o755]] as const) {
    if (varFolder !== undefined) folders.push({ path: `${varFolder}/${name}`, mode });
    else if (!request.folders.includes("/var")) {
      if (!folders.some(({ path }) => path === "root/var")) folders.push({ path: "root/var", mode: 0o755 });
      folders.push({ path: `root/var/${name}`, mode });
    }
  }
  if (request.storage === "read-only") {
    folders.push({ path: "empty", mode: 0o755 });
    for (const { path, folder } of request.covered) {
      if (!request.folders.some((shown) => path.startsWith(shown + "/"))) continue;
      add(folder ? `${base}/tree/empty` : "/dev/null", root + path, "none", "bind,ro");
    }
    for (const path of ["/var/tmp", "/var/log", "/var/cache"]) {
      if (request.folders.includes("/var")) add("tmpfs", root + path, "tmpfs", "nosuid,nodev,mode=1777");
    }
  }
  add(request.control, root + CONTROL, "none", "bind,ro,nodev,nosuid");
  for (const name of DEVICES) add(`/dev/${name}`, `${root}/dev/${name}`, "none", "bind");
  add("tmpfs", `${root}/dev/shm`, "tmpfs", "nosuid,nodev,mode=1777");
  const tty = request.ttyGroup ? ",gid=5" : "";
  add("devpts", `${root}/dev/pts`, "devpts", `newinstance,ptmxmode=0666,mode=620,nosuid,noexec${tty}`);
  add("proc", `${root}/proc`, "proc", "nosuid,nodev,noexec");
  for (const name of PROC_READ_ONLY.filter((name) => request.procEntries.includes(name))) {
    add(`${root}/proc/${name}`, `${root}/proc/${name}`, "none", "bind,ro,nosuid,nodev,noexec");
  }
  const masked = PROC_MASKED.filter((name) => request.procEntries.includes(name));
  if (masked.length > 0) folders.push({ path: "none", mode: 0o555 });
  for (const name of masked) {
    const isFolder = name === "acpi" || name === "asound" || name === "scsi";
    add(isFolder ? `${base}/tree/none` : "/dev/null", `${root}/proc/${name}`, "none", isFolder ? "bind,ro" : "bind");
  }
  if (request.sysfs) {
    add("sysfs", `${root}/sys`, "sysfs", "ro,nosuid,nodev,noexec");
    const covered = SYS_MASKED.filter((path) => request.sysPaths.includes(path));
    if (covered.length > 0 && masked.length === 0) folders.push({ path: "none", mode: 0o555 });
    for (const path of covered) add(`${base}/tree/none`, root + path, "none", "bind,ro");
  }
  return {
    fstab: lines.join("\n") + "\n",
    folders,
    files: DEVICES.map((name) => `root/dev/${name}`),
    links,
    copies: request.copies.map((path) => [path, `root${path}`]),
    up,
  };
}

const parentOf = (path: string): string => path.slice(0, path.lastIndexOf("/")) || "/";

/** fstab(5): white space, `#` and backslash are octal escapes. */
function fstabWord(word: string): string {
  return word.replace(/[\\\s#]/g, (char) => `\\${char.charCodeAt(0).toString(8).padStart(3, "0")}`);
}

export const SYS_CANDIDATES: readonly string[] = SYS_MASKED;
