/**
 * Where a run keeps what must lie on a disk of this machine: temp files, sockets, sandboxes without an engine. Each run
 * has one folder, mode 0700, that names its owner, so that the next start finds what a crash left and removes it once
 * the owner is dead.
 */
import { spawnSync } from "node:child_process";
import { existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, rmdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { z } from "zod";
import { errno, HarborError, messageOf } from "../errors.ts";
import { readHolder } from "../files/lock.ts";
import { thisUid } from "../runtime/user.ts";
import { concerns, isAlive, type Owner } from "./owner.ts";
import type { OwnerFilter, SweepReport } from "./provider.ts";

const OwnerFile = z.object({ run: z.string(), host: z.string(), pid: z.number().int().positive(), start: z.string() });
const OWNER = "owner.json";

/** The folder that holds this user's runs: below TMPDIR, else /tmp. Short, since socket paths end at 107 bytes. */
export function scratchRoot(env: Readonly<Record<string, string | undefined>>): string {
  return resolve(env.TMPDIR || "/tmp", `gym-harbor-${thisUid()}`);
}

/** Makes the run's folder. Throws "machine.lacks" when it cannot, or when somebody else made its parent. */
export function makeScratch(env: Readonly<Record<string, string | undefined>>, owner: Owner): string {
  const root = scratchRoot(env);
  const folder = join(root, owner.run);
  try {
    mkdirSync(root, { mode: 0o700, recursive: true });
    const found = lstatSync(root);
    if (!found.isDirectory() || found.uid !== thisUid() || (found.mode & 0o022) !== 0) {
      throw new HarborError(
        "machine.lacks",
        `Cannot use ${root} for temporary files: it is not a folder of ours alone`,
        {
          hint: "remove it, or set TMPDIR to a folder of your own",
        },
      );
    }
    makeBelow(root, folder);
    writeFileSync(join(folder, OWNER), JSON.stringify(owner), { mode: 0o600 });
  } catch (cause) {
    if (cause instanceof HarborError) throw cause;
    throw new HarborError("machine.lacks", `Cannot make a folder for temporary files: ${messageOf(cause)}`, {
      cause,
      hint: `set TMPDIR to a folder on a local disk that you may write (now: ${env.TMPDIR || "/tmp"})`,
    });
  }
  return folder;
}

/** Twice, since the end of another run removes an empty parent, maybe between its making and ours. */
function makeBelow(root: string, folder: string): void {
  try {
    mkdirSync(folder, { mode: 0o700, recursive: true });
  } catch (error) {
    if (errno(error) !== "ENOENT") throw error;
    mkdirSync(root, { mode: 0o700, recursive: true });
    mkdirSync(folder, { mode: 0o700, recursive: true });
  }
}

/** Every run's folder on this machine that can be read, with its owner. A folder without a readable owner is skipped. */
export function scratchFolders(root: string): { folder: string; owner: Owner }[] {
  const found: { folder: string; owner: Owner }[] = [];
  for (const name of entries(root)) {
    try {
      const folder = join(root, name);
      found.push({ folder, owner: OwnerFile.parse(JSON.parse(readFileSync(join(folder, OWNER), "utf8"))) });
    } catch {
      // half made, or not ours: left alone
    }
  }
  return found;
}

/** Ids of the namespace that removes: the user's whole range, or only the one id that every user has. */
const INSIDE = [["--map-root-user", "--map-users=auto", "--map-groups=auto"], ["--map-root-user"]];

const removedInside = (ids: readonly string[], folder: string): boolean =>
  spawnSync("unshare", ["--user", ...ids, "rm", "-rf", "--", folder], { stdio: "ignore" }).status === 0;

/**
 * Removes a run's folder once nothing is mounted in it any more, and its parent with the last one. The owner's name goes
 * last: what is half removed when we are killed must still be known to the next sweep. Throws HarborError
 * "machine.lacks" for what cannot be removed at all.
 */
export function removeScratch(folder: string): void {
  for (const name of entries(folder).filter((one) => one !== OWNER)) removeWhole(join(folder, name));
  removeWhole(folder);
  removeEmpty(dirname(folder));
}

function removeEmpty(folder: string): void {
  try {
    rmdirSync(folder);
  } catch {
    // other runs have folders there
  }
}

const REMOVALS = 20;

/**
 * What sandboxes of a plain user wrote under other ids of his range can only be removed where those ids are his: inside
 * a user namespace. Bun 1.4's rmSync stops, and says nothing, at an entry that somebody else removes meanwhile.
 */
export function removeWhole(path: string): void {
  try {
    for (let round = 0; round < REMOVALS && exists(path); round++) rmSync(path, { recursive: true, force: true });
  } catch (error) {
    if (errno(error) !== "EACCES" && errno(error) !== "EPERM") throw error;
    if (INSIDE.some((ids) => removedInside(ids, path))) return;
    throw new HarborError("machine.lacks", `Cannot remove the temp folder ${path}: ${messageOf(error)}`, {
      hint: `remove it by hand: unshare --user --map-root-user rm -rf ${path}`,
      cause: error,
    });
  }
}

const exists = (path: string): boolean => lstatSync(path, { throwIfNoEntry: false }) !== undefined;

const KEPT = "kept";

/** Notes in a run's folder that a sandbox of it stays on purpose, so that later starts leave it alone. */
export const markKept = (folder: string): void => writeFileSync(join(folder, KEPT), "");

/** Whether the run left a sandbox on purpose; only an explicit clean-up removes it. */
export const isKept = (env: Readonly<Record<string, string | undefined>>, run: string): boolean =>
  existsSync(join(scratchRoot(env), run, KEPT));

/** Removes the folders of dead runs that no provider took for its own. `olderThanMs` counts from `now`. */
export function sweepScratch(root: string, filter: OwnerFilter & { now: Date }): SweepReport {
  const report: SweepReport = { removed: [], failed: [] };
  const { olderThanMs = 0, now } = filter;
  const owned = scratchFolders(root).filter(({ owner }) => isAlive(owner) === false).map(({ folder, owner }) => ({
    folder,
    run: owner.run,
    leastMs: olderThanMs,
  }));
  const ownerless = ownerlessFolders(root).map(({ folder, run }) => ({
    folder,
    run,
    leastMs: Math.max(olderThanMs, HALF_MADE_MS),
  }));
  for (const { folder, run, leastMs } of [...owned, ...ownerless]) {
    if (!concerns(filter, { run })) continue;
    try {
      if (now.getTime() - lstatSync(folder).mtimeMs < leastMs) continue;
      removeScratch(folder);
      report.removed.push(folder);
    } catch (error) {
      report.failed.push({ id: folder, reason: messageOf(error) });
    }
  }
  sweepLocks(root);
  return report;
}

/** Between making its folder and naming its owner a run needs no longer than this. */
const HALF_MADE_MS = 60_000;

/** Folders named like a run that have no owner's file: killed while they were made, or while they were removed. */
function ownerlessFolders(root: string): { folder: string; run: string }[] {
  return entries(root).filter((name) => /^[a-z0-9]{8}$/.test(name)).map((run) => ({ folder: join(root, run), run }))
    .filter(({ folder }) => !existsSync(join(folder, OWNER)) && !existsSync(join(folder, KEPT)));
}

/** Lock files beside the runs' folders end in this. */
export const LOCK_SUFFIX = ".lock";

/** Locks of dead holders would be taken over by the next who wants them; until then they only lie about. */
function sweepLocks(root: string): void {
  for (const name of entries(root).filter((one) => one.endsWith(LOCK_SUFFIX))) {
    const path = join(root, name);
    const holder = readHolder(path)?.holder;
    if (holder !== undefined && isAlive(holder) === false) rmSync(path, { force: true });
  }
  removeEmpty(root);
}

function entries(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch (error) {
    if (errno(error) === "ENOENT" || errno(error) === "EACCES") return [];
    throw error;
  }
}
