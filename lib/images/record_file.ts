/**
 * One JSON object on disk that several processes and machines add to (images §2.4, §3): read whole, merged under a lock,
 * replaced in one step. What is not understood is kept, a file that does not parse is refused by name and never
 * overwritten, and where nothing changes nothing is opened for writing.
 *
 * The lock is `<file>.held` and not `<file>.lock`: NeMo Gym leaves an empty `.lock` behind for good, which would look
 * held for ever, and whose flock() no Node API can take.
 */
import { readdirSync, readFileSync, rmSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { errno, HarborError, messageOf } from "../errors.ts";
import { writeAtomic } from "../files/atomic.ts";
import { lockFile } from "../files/lock.ts";
import { byCodePoint } from "../files/order.ts";
import type { Clock } from "../runtime/clock.ts";

export type JsonObject = Record<string, unknown>;

/** A merge is a read and a write of one small file; a holder that needs longer is stuck. */
const LOCK_WAIT_MS = 180_000;

/** The object in `path`; empty when there is no file. Throws HarborError "store.corrupt" naming the file. */
export function readRecordFile(path: string): JsonObject {
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(readFileSync(path));
  } catch (error) {
    if (errno(error) === "ENOENT" || errno(error) === "ENOTDIR") return {};
    throw unreadable(path, messageOf(error), error);
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw unreadable(path, messageOf(error), error);
  }
  if (!isObject(value)) throw unreadable(path, "it holds no JSON object");
  return value;
}

const unreadable = (path: string, why: string, cause?: unknown): HarborError =>
  new HarborError("store.corrupt", `Cannot read the image records ${path}: ${why}`, {
    hint: "mend the file, or move it aside: the next prepare reads the images again and rebuilds what it must",
    cause,
  });

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/**
 * Applies `change` to what the file holds at that moment and returns what it holds then. `change` may run twice and
 * must not alter its argument. Throws "store.corrupt", "store.unwritable" and "store.locked".
 */
export async function updateRecordFile(
  path: string,
  change: (found: JsonObject) => JsonObject,
  { clock, signal }: { clock: Clock; signal?: AbortSignal },
): Promise<JsonObject> {
  const before = readRecordFile(path);
  if (isDeepStrictEqual(change(before), before)) return before;
  using lock = await lockFile(`${path}.held`, { clock, waitMs: LOCK_WAIT_MS, signal });
  removeLeftovers(path);
  const found = readRecordFile(path);
  const wanted = change(found);
  if (isDeepStrictEqual(wanted, found)) return found;
  lock.lost.throwIfAborted();
  try {
    await writeAtomic(path, textOf(wanted));
  } catch (cause) {
    throw new HarborError("store.unwritable", `Cannot write the image records ${path}: ${messageOf(cause)}`, {
      hint: "make the dataset folder writable for this user, or work on a copy",
      cause,
    });
  }
  return wanted;
}

/** Two blanks, keys in code-point order, a final newline: diffs stay small whoever writes. */
export const textOf = (value: JsonObject): string => JSON.stringify(sorted(value), null, 2) + "\n";

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (!isObject(value)) return value;
  const keys = Object.keys(value).sort(byCodePoint);
  return Object.fromEntries(keys.map((key) => [key, sorted(value[key])]));
}

/** Temporary files of writers that died before their rename. Only the holder of the lock makes them. */
function removeLeftovers(path: string): void {
  const [folder, name] = [dirname(path), basename(path)];
  for (const found of readdirSync(folder)) {
    if (found.startsWith(`.${name}.`) && found.endsWith(".tmp")) rmSync(join(folder, found), { force: true });
  }
}
