/**
 * Where a run keeps what must lie on a disk of this machine: temp files, sockets, sandboxes without an engine. Each run
 * has one folder, mode 0700, that names its owner, so that the next start finds what a crash left and removes it once
 * the owner is dead.
 */
import { existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, rmdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { z } from "zod";
import { errno, HarborError, messageOf } from "../errors.ts";
import type { Owner } from "./owner.ts";

const OwnerFile = z.object({ run: z.string(), host: z.string(), pid: z.number().int().positive(), start: z.string() });
const OWNER = "owner.json";

/** The folder that holds this user's runs: below TMPDIR, else /tmp. Short, since socket paths end at 107 bytes. */
export function scratchRoot(env: Readonly<Record<string, string | undefined>>): string {
  return join(env.TMPDIR || "/tmp", `gym-harbor-${process.getuid?.() ?? "0"}`);
}

/** Makes the run's folder. Throws "machine.lacks" when it cannot, or when somebody else made its parent. */
export function makeScratch(env: Readonly<Record<string, string | undefined>>, owner: Owner): string {
  const root = scratchRoot(env);
  const folder = join(root, owner.run);
  try {
    mkdirSync(root, { mode: 0o700, recursive: true });
    const found = lstatSync(root);
    if (!found.isDirectory() || found.uid !== process.getuid?.() || (found.mode & 0o022) !== 0) {
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

/** A run that ends removes an empty parent, maybe between our two steps. */
function makeBelow(root: string, folder: string): void {
  try {
    mkdirSync(folder, { mode: 0o700 });
  } catch (error) {
    if (errno(error) !== "ENOENT") throw error;
    mkdirSync(root, { mode: 0o700, recursive: true });
    mkdirSync(folder, { mode: 0o700 });
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

/** Removes a run's folder once nothing is mounted in it any more, and its parent with the last one. */
export function removeScratch(folder: string): void {
  rmSync(folder, { recursive: true, force: true });
  try {
    rmdirSync(dirname(folder));
  } catch {
    // other runs have folders there
  }
}

const KEPT = "kept";

/** Notes in a run's folder that a sandbox of it stays on purpose, so that later starts leave it alone. */
export const markKept = (folder: string): void => writeFileSync(join(folder, KEPT), "");

/** Whether the run left a sandbox on purpose; only an explicit clean-up removes it. */
export const isKept = (env: Readonly<Record<string, string | undefined>>, run: string): boolean =>
  existsSync(join(scratchRoot(env), run, KEPT));

function entries(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch (error) {
    if (errno(error) === "ENOENT" || errno(error) === "EACCES") return [];
    throw error;
  }
}
