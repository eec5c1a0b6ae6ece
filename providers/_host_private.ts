/**
 * What must not be seen inside although it lies in a shown folder: credentials, other sandboxes' storage, everything
 * that only its owner may read, and the folders of the run. It is hidden by a layer of whiteouts between this machine's
 * files and the sandbox's own writes, made once per set of hidden paths: inside, the paths are simply absent, nothing
 * can be unmounted to reveal them, and a program may create them anew.
 *
 * Whiteouts are character devices 0/0, which any user may make since Linux 5.8 and root always could; one is made by
 * `mknod`, the others are hard links to it. A whiteout over nothing breaks `ls`, so only what exists is hidden.
 */
import * as fs from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { HarborError } from "../lib/errors.ts";
import type { Runner } from "../lib/runtime/runner.ts";

/** Hidden wherever they exist (spec/decisions 19); `*` ends a name prefix. */
export const HIDDEN = [
  "/etc/shadow*",
  "/etc/gshadow*",
  "/etc/ssh",
  "/etc/sudoers*",
  "/etc/krb5.keytab",
  "/etc/munge",
  "/etc/machine-id",
  "/var/lib/containers",
  "/var/lib/docker",
  "/var/lib/containerd",
  "/var/lib/kubelet",
  "/var/lib/dbus",
  "/var/spool",
  "/var/mail",
  "/var/run", // a link to the fresh /run where it is a link, else sockets of this machine
  "/var/tmp",
  "/var/backups",
  "/var/crash",
];

/** Whether a path is hidden by the table above, by its name alone. */
export function isHiddenByName(path: string): boolean {
  return HIDDEN.some((pattern) =>
    pattern.endsWith("*") ? path.startsWith(pattern.slice(0, -1)) : path === pattern || path.startsWith(pattern + "/")
  );
}

/**
 * Home folders of people, wherever a site keeps them (/var/home, /opt/home): those of /etc/passwd from id 1000 on, and
 * our own. Folders that programs live in are nobody's home.
 */
export function homesOf(passwd: string, home: string | undefined): string[] {
  const people = passwd.split("\n").map((line) => line.split(":")).filter((fields) =>
    fields.length >= 6 && Number(fields[2]) >= 1000 && Number(fields[2]) < 65_534
  ).map((fields) => fields[5]!);
  const tops = /^\/(?:bin|etc|lib\w*|nix|opt|sbin|usr|var|gnu)(?:\/(?:local|share|lib|bin|sbin|empty|tmp|run))?$/;
  return [...people, home ?? ""].map((path) => path.replace(/\/+$/, "")).filter((path) =>
    path.startsWith("/") && !tops.test(path)
  );
}

/** How deep the search for private files goes below each folder: settings wholly, data a few levels. */
const SEARCH_DEPTH: Record<string, number> = { "/etc": 8, "/opt": 3, "/var": 4, "/usr": 2, "/usr/local": 4 };
const SEARCH_LIMIT = 50_000;

/** Whether only its owner or group may read it: nobody else is meant to. */
export function isPrivate(stat: { mode: number; uid: number }, ourUid: number): boolean {
  // As root every file opens, so every private file counts; a plain user can open only his own.
  return (stat.mode & 0o007) === 0 && (stat.mode & fs.constants.S_IFMT) !== fs.constants.S_IFLNK &&
    (ourUid === 0 || stat.uid === ourUid);
}

/** Folders of systems: who keeps tasks straight in one of them hides the tasks, not the system. */
const SYSTEM = new Set(
  ("/ /bin /sbin /lib /etc /opt /nix /gnu /usr /usr/bin /usr/lib /usr/sbin /usr/share /usr/src /usr/local /usr/local/bin " +
    "/usr/local/lib /usr/local/share /var /var/lib /var/cache /var/log /var/opt").split(" "),
);

/** What is hidden on every machine alike: the table above and everything private. Some ten thousand lookups: kept by the caller. */
export function findPrivate(ourUid: number): string[] {
  const found = new Set<string>();
  for (const pattern of HIDDEN) {
    for (const path of expand(pattern)) found.add(path);
  }
  let budget = SEARCH_LIMIT;
  const search = (folder: string, depth: number) => {
    if (depth < 0 || found.has(folder)) return;
    for (const entry of entries(folder)) {
      if (budget-- <= 0) return;
      const path = join(folder, entry.name);
      if (found.has(path) || entry.isSymbolicLink()) continue;
      try {
        // What we cannot open, nobody inside can: absent is kinder than in the way (/etc/.pwd.lock and `useradd`).
        const shut = ourUid !== 0 && path.startsWith("/etc/") && !readable(path);
        // A socket is a way to a service of this machine.
        if (shut || entry.isSocket() || isPrivate(fs.lstatSync(path), ourUid)) found.add(path);
        else if (entry.isDirectory()) search(path, depth - 1);
      } catch {
        // gone meanwhile
      }
    }
  };
  for (const [folder, depth] of Object.entries(SEARCH_DEPTH)) search(folder, depth);
  return [...found];
}

/** Which paths to hide below `folders`: the private ones and those that `hide` names; in order, none inside another. */
export function hiddenBelow(
  folders: readonly string[],
  privatePaths: readonly string[],
  hide: readonly string[],
): string[] {
  const found = new Set(privatePaths);
  for (const path of hide) {
    for (const real of [path, realOf(path)]) {
      if (real === undefined || !exists(real)) continue;
      if (!SYSTEM.has(real)) found.add(real);
      else for (const { name } of entries(real)) if (exists(join(real, name, "task.toml"))) found.add(join(real, name));
    }
  }
  const shown = [...found].filter((path) => folders.some((folder) => path.startsWith(folder + "/")));
  return shown.filter((path) => !shown.some((other) => path.startsWith(other + "/"))).sort();
}

function expand(pattern: string): string[] {
  if (!pattern.endsWith("*")) {
    try {
      return fs.lstatSync(pattern).isSymbolicLink() ? [] : [pattern];
    } catch {
      return [];
    }
  }
  const prefix = pattern.slice(0, -1);
  return entries(dirname(prefix)).map((entry) => join(dirname(prefix), entry.name)).filter((path) =>
    path.startsWith(prefix)
  );
}

function readable(path: string): boolean {
  try {
    fs.accessSync(path, fs.constants.R_OK);
    return true;
  } catch {
    return false;
  }
}

function entries(folder: string): fs.Dirent[] {
  try {
    return fs.readdirSync(folder, { withFileTypes: true });
  } catch {
    return []; // unreadable to us is unreadable inside
  }
}

function exists(path: string): boolean {
  try {
    fs.lstatSync(path);
    return true;
  } catch {
    return false;
  }
}

function realOf(path: string): string | undefined {
  try {
    return fs.realpathSync(path);
  } catch {
    return undefined;
  }
}

/** Folders whose whole tree of directories a plain user may write to inside, to this depth (see makeMask). */
const WRITABLE_DEPTH: Record<string, number> = { "/etc": 6, "/opt": 2, "/usr": 2, "/usr/local": 5, "/var": 4 };
const COPIED_BYTES = 256 * 1024;

export interface Mask {
  /** Folder that holds the layer, laid out like the root folder. */
  layer: string;
  hidden: string[];
}

/**
 * Makes the layer in `layer` (which must not exist). `ownIds` says that only our own ids are mapped inside: files of
 * this machine's root then belong to nobody there and nobody can write them, so the folders that programs install into
 * and the files of /etc get copies that belong to the sandbox's root.
 */
export async function makeMask(
  layer: string,
  folders: readonly string[],
  hidden: readonly string[],
  { ownIds, runner }: { ownIds: boolean; runner: Runner },
): Promise<Mask> {
  fs.mkdirSync(layer, { recursive: true, mode: 0o700 });
  const inside = (path: string) => join(layer, path);
  for (const folder of folders) mirror(layer, folder, ownIds);
  const isHidden = (path: string) => hidden.some((one) => path === one || path.startsWith(one + "/"));
  if (ownIds) {
    for (const [top, depth] of Object.entries(WRITABLE_DEPTH)) {
      if (folders.some((folder) => top === folder || top.startsWith(folder + "/"))) {
        adopt(layer, top, depth, isHidden);
      }
    }
  }
  if (hidden.length > 0) {
    const whiteout = join(layer, ".whiteout");
    const made = await runner.run(["mknod", whiteout, "c", "0", "0"]);
    if (made.exitCode !== 0) {
      throw new HarborError("machine.lacks", `Cannot hide files of this machine: ${made.stderr.trim()}`, {
        hint: "a kernel of 5.8 or newer, or root, is needed to make overlay whiteouts",
      });
    }
    for (const path of hidden) {
      mirror(layer, dirname(path), ownIds);
      fs.rmSync(inside(path), { recursive: true, force: true });
      fs.linkSync(whiteout, inside(path));
    }
    fs.rmSync(whiteout);
  }
  replace(layer, folders);
  return { layer, hidden: [...hidden] };
}

/** Makes `folder` and its parents in the layer with the attributes they have on this machine (the upper one shows). */
function mirror(layer: string, folder: string, ownIds: boolean): void {
  if (folder === "/" || exists(join(layer, folder))) return;
  mirror(layer, dirname(folder), ownIds);
  const stat = fs.statSync(folder);
  fs.mkdirSync(join(layer, folder));
  if (!ownIds && process.getuid?.() === 0) fs.chownSync(join(layer, folder), stat.uid, stat.gid);
  fs.chmodSync(join(layer, folder), stat.mode & 0o7777);
}

function adopt(layer: string, folder: string, depth: number, isHidden: (path: string) => boolean): void {
  if (isHidden(folder) || !exists(folder) || !fs.lstatSync(folder).isDirectory()) return;
  mirror(layer, folder, true);
  for (const entry of entries(folder)) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) {
      if (depth > 0) adopt(layer, path, depth - 1, isHidden);
    } else if (entry.isFile() && path.startsWith("/etc/") && !isHidden(path)) {
      try {
        const stat = fs.statSync(path);
        if (stat.size > COPIED_BYTES) continue;
        fs.copyFileSync(path, join(layer, path));
        fs.chmodSync(join(layer, path), stat.mode & 0o7777);
      } catch {
        // unreadable to us: it stays what it is
      }
    }
  }
}

/** Login programs need these files: they say that no account has a password and that root may do anything. */
function replace(layer: string, folders: readonly string[]): void {
  if (!folders.includes("/etc") || !exists("/etc/passwd")) return;
  const accounts = fs.readFileSync("/etc/passwd", "latin1").split("\n").map((line) => line.split(":")[0]!).filter(
    Boolean,
  );
  const write = (path: string, text: string, mode: number) => {
    fs.rmSync(join(layer, path), { force: true });
    fs.writeFileSync(join(layer, path), text, { mode });
    fs.chmodSync(join(layer, path), mode);
  };
  write("/etc/shadow", accounts.map((name) => `${name}:*:19000:0:99999:7:::\n`).join(""), 0o640);
  write("/etc/sudoers", "root ALL=(ALL:ALL) ALL\n", 0o440);
}
