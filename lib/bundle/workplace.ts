/**
 * The folder that an export writes. From its first byte to its last it holds a file that names what is exported, and no
 * SHA256SUMS: so a half-written bundle is never taken for a whole one, and the same export goes on where it stopped.
 */
import { existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { HarborError } from "../errors.ts";
import { writeAtomic } from "../files/atomic.ts";
import { lockFile } from "../files/lock.ts";
import { isFolder } from "../files/tree.ts";
import type { Clock } from "../runtime/clock.ts";
import { PLACES, SCHEMA_VERSION } from "./schema.ts";

const Identity = z.object({ taskset: z.string(), kind: z.enum(["dataset", "task"]), platform: z.string() });
/** What an export is of. Two that differ here must not meet in one folder. */
export type Identity = z.infer<typeof Identity>;

const LOCK = ".export.lock";
const OURS = new Set<string>([...Object.values(PLACES).map((place) => place.split("/")[0]!), LOCK]);

export interface Workplace extends Disposable {
  readonly folder: string;
  /** Ends it: the bundle is whole. */
  finish(): void;
}

/**
 * Takes the folder, which may be absent, empty, or hold an earlier export of the same. Throws HarborError "usage" for
 * any other, "store.locked" while another export works on it.
 */
export async function openWorkplace(
  folder: string,
  identity: Identity,
  { clock, signal }: { clock: Clock; signal: AbortSignal },
): Promise<Workplace> {
  refuseForeign(folder, identity);
  mkdirSync(folder, { recursive: true });
  const lock = await lockFile(join(folder, LOCK), { clock, waitMs: 0, signal });
  try {
    refuseForeign(folder, identity);
    await writeAtomic(join(folder, PLACES.unfinished), JSON.stringify(identity) + "\n");
    for (const name of [PLACES.index, PLACES.sums]) rmSync(join(folder, name), { force: true });
  } catch (error) {
    lock[Symbol.dispose]();
    throw error;
  }
  return {
    folder,
    finish: () => rmSync(join(folder, PLACES.unfinished)),
    [Symbol.dispose]: () => lock[Symbol.dispose](),
  };
}

function refuseForeign(folder: string, identity: Identity): void {
  if (lstatSync(folder, { throwIfNoEntry: false }) === undefined) return;
  const refuse = (message: string, hint = "name another folder with --out, or remove this one"): never => {
    throw new HarborError("usage", message, { hint });
  };
  if (!isFolder(folder)) refuse(`${folder} is not a folder`);
  const names = readdirSync(folder).filter((name) => !name.endsWith(".tmp"));
  const other = names.filter((name) => !OURS.has(name));
  if (other.length > 0) refuse(`${folder} is no bundle: it holds ${other.slice(0, 3).join(", ")}`);
  if (names.every((name) => name === LOCK)) return;
  const version = versionOf(folder);
  if (version !== undefined && version > SCHEMA_VERSION) {
    refuse(
      `${folder} holds a bundle of schema_version ${version}, this gym-harbor writes ${SCHEMA_VERSION}`,
      "export with a newer gym-harbor, or name another folder with --out",
    );
  }
  const found = identityOf(folder);
  if (found === undefined) return refuse(`${folder} holds neither a bundle nor the beginning of one`);
  const wanted: Identity = { taskset: identity.taskset, kind: identity.kind, platform: identity.platform };
  if (JSON.stringify(found) !== JSON.stringify(wanted)) {
    refuse(
      `${folder} holds a bundle of ${found.taskset} for ${found.platform}, not of ${wanted.taskset} for ${wanted.platform}`,
    );
  }
}

const indexOf = (folder: string) => JSON.parse(readFileSync(join(folder, PLACES.index), "utf8"));

/** Of the whole bundle that lies there; undefined where there is none that says so. */
function versionOf(folder: string): number | undefined {
  try {
    const { schema_version: version } = indexOf(folder);
    return typeof version === "number" ? version : undefined;
  } catch {
    return undefined;
  }
}

function identityOf(folder: string): Identity | undefined {
  try {
    if (existsSync(join(folder, PLACES.unfinished))) {
      return Identity.parse(JSON.parse(readFileSync(join(folder, PLACES.unfinished), "utf8")));
    }
    const { dataset, platform } = indexOf(folder);
    return Identity.parse({ taskset: dataset?.taskset, kind: dataset?.kind, platform });
  } catch {
    return undefined;
  }
}
