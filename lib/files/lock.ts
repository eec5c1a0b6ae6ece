/**
 * An advisory lock between processes: a file that names its holder. It needs only exclusive creation, so it also
 * holds on NFS, where flock may hang or be ignored. A holder on this machine that is gone is taken over at once; one
 * on another machine when its heartbeat stopped, which is measured against a file just written in the same folder and
 * thus by the same server's clock, never by ours. Waits are bounded. Within one process share a promise instead.
 */
import { closeSync, fdatasyncSync, fstatSync, openSync, readFileSync, rmSync, writeSync } from "node:fs";
import { errno, HarborError } from "../errors.ts";
import type { Clock } from "../runtime/clock.ts";
import { isAlive, type ProcessIdentity, thisProcess } from "../runtime/process_identity.ts";
import { unwritable } from "./unwritable.ts";

/** How often a holder shows that it lives, and how long its silence must last before another machine takes over. */
const HEARTBEAT_MS = 15_000;
const STALE_MS = 120_000;
const LONGEST_PAUSE_MS = 1_000;

export interface Holder extends ProcessIdentity {
  /** Tells one holding from another. */
  readonly token: string;
}

export interface LockOptions {
  clock: Clock;
  /** How long to wait for another holder, in milliseconds; 0 fails at once. */
  waitMs: number;
  signal?: AbortSignal;
  /** Told once, when there is something to wait for. */
  onWait?: (holder: string) => void;
  heartbeatMs?: number;
  staleMs?: number;
}

/** A lock that is held until it is disposed of; disposal is synchronous and may run twice. */
export class FileLock implements Disposable {
  #heartbeat: Disposable | undefined;
  #lost = new AbortController();

  constructor(readonly path: string, readonly holder: Holder, clock: Clock, heartbeatMs: number) {
    this.#heartbeat = clock.every(heartbeatMs, () => this.#beat());
  }

  /** Aborted when another holder took over, which happens only if this process was silent for minutes. */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  /** Writing renews the time on the server; setting times would carry this machine's clock over. */
  #beat(): void {
    try {
      const found = readHolder(this.path);
      if (found?.holder?.token === this.holder.token) return writeInPlace(this.path, textOf(this.holder));
    } catch {
      return; // a server that is away for a moment: the next beat tells
    }
    this.#heartbeat?.[Symbol.dispose]();
    this.#lost.abort(
      new HarborError("store.locked", `The lock ${this.path} was taken over by another process`, {
        hint: "let one of the two end, then continue with --resume",
      }),
    );
  }

  [Symbol.dispose](): void {
    if (this.#heartbeat === undefined) return;
    this.#heartbeat[Symbol.dispose]();
    this.#heartbeat = undefined;
    try {
      if (readHolder(this.path)?.holder?.token === this.holder.token) rmSync(this.path, { force: true });
    } catch {
      // a lock that cannot be removed is stale as soon as we are gone
    }
  }
}

/**
 * Takes the lock `path`, whose folder must exist. Throws HarborError "store.locked" naming the holder when `waitMs` is
 * over, "store.unwritable" when no file can be made there, and the signal's reason on an abort.
 */
export async function lockFile(path: string, options: LockOptions): Promise<FileLock> {
  const { clock, signal } = options;
  const holder: Holder = { ...thisProcess(), token: crypto.randomUUID() };
  const until = clock.ticks() + options.waitMs;
  const staleMs = options.staleMs ?? STALE_MS;
  let told = false;
  let watched: { mtimeMs: number; since: number } | undefined;
  for (let pause = 20;; pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
    signal?.throwIfAborted();
    if (create(path, textOf(holder))) return new FileLock(path, holder, clock, options.heartbeatMs ?? HEARTBEAT_MS);
    const found = readHolder(path);
    if (found === undefined) continue; // released just now
    if (watched?.mtimeMs !== found.mtimeMs) watched = { mtimeMs: found.mtimeMs, since: clock.ticks() };
    // A time in the future, of a clock that was put back since, never grows old: what is seen to stand still does.
    const silent = clock.ticks() - watched.since > staleMs && isElsewhere(found);
    if ((silent || isStale(path, found, staleMs)) && takeOver(path, found, staleMs)) continue;
    const left = until - clock.ticks();
    if (left <= 0) throw locked(path, found.holder);
    if (!told) options.onWait?.(describe(found.holder));
    told = true;
    await clock.sleep(Math.min(pause, left), signal);
  }
}

interface Found {
  /** Undefined for a file without a readable holder: made a moment ago, or not by us. */
  holder: Holder | undefined;
  text: string;
  mtimeMs: number;
}

/** Opens the file, because only an open makes an NFS client ask the server for fresh times. */
export function readHolder(path: string): Found | undefined {
  let file: number;
  try {
    file = openSync(path, "r");
  } catch (error) {
    if (errno(error) === "ENOENT") return undefined;
    throw unwritable(`Cannot lock ${path}`, error);
  }
  try {
    const text = readFileSync(file, "utf8");
    return { holder: parse(text), text, mtimeMs: fstatSync(file).mtimeMs };
  } finally {
    closeSync(file);
  }
}

function parse(text: string): Holder | undefined {
  try {
    const { host, pid, start, token } = JSON.parse(text) as Partial<Holder>;
    if (typeof host !== "string" || typeof pid !== "number" || typeof token !== "string") return undefined;
    return { host, pid, start: start ?? "", token };
  } catch {
    return undefined;
  }
}

/** Whether only its heartbeat can tell if the holder lives. */
const isElsewhere = ({ holder }: Found): boolean => holder === undefined || isAlive(holder) === undefined;

function isStale(path: string, found: Found, staleMs: number): boolean {
  const alive = found.holder === undefined ? undefined : isAlive(found.holder);
  if (alive !== undefined) return !alive;
  return serverTime(path) - found.mtimeMs > staleMs;
}

/** Now, as the file system's own clock stamps files. */
function serverTime(path: string): number {
  const probe = `${path}.${crypto.randomUUID()}.tmp`;
  try {
    if (!create(probe, "?")) return 0;
    const file = openSync(probe, "r");
    try {
      return fstatSync(file).mtimeMs;
    } finally {
      closeSync(file);
    }
  } finally {
    rmSync(probe, { force: true });
  }
}

/**
 * Removes a stale lock and answers whether it is worth trying at once. Of several that saw it only the one that makes
 * the guard file removes it, and looks again first, or it would remove the lock of whoever was faster. A guard lives
 * for milliseconds; one whose maker died is removed by the same rules as a lock.
 */
function takeOver(path: string, seen: Found, staleMs: number): boolean {
  const guard = `${path}.takeover`;
  if (!create(guard, textOf({ ...thisProcess(), token: "guard" }))) {
    const other = readHolder(guard);
    if (other !== undefined && isStale(guard, other, staleMs)) rmSync(guard, { force: true });
    return false;
  }
  try {
    if (readHolder(path)?.text === seen.text) rmSync(path, { force: true });
    return true;
  } finally {
    rmSync(guard, { force: true });
  }
}

/** Makes the file with its content, or answers false when there is one. */
function create(path: string, text: string): boolean {
  let file: number;
  try {
    file = openSync(path, "wx", 0o644);
  } catch (error) {
    if (errno(error) === "EEXIST") return false;
    throw unwritable(`Cannot lock ${path}`, error);
  }
  try {
    writeSync(file, text);
    fdatasyncSync(file);
    return true;
  } catch (error) {
    rmSync(path, { force: true });
    throw unwritable(`Cannot lock ${path}`, error);
  } finally {
    closeSync(file);
  }
}

function writeInPlace(path: string, text: string): void {
  const file = openSync(path, "r+");
  try {
    writeSync(file, text, 0);
    fdatasyncSync(file);
  } finally {
    closeSync(file);
  }
}

const textOf = (holder: Holder): string => JSON.stringify(holder) + "\n";

const describe = (holder: Holder | undefined): string =>
  holder === undefined ? "an unnamed process" : `process ${holder.pid} on ${holder.host}`;

function locked(path: string, holder: Holder | undefined): HarborError {
  return new HarborError("store.locked", `Cannot lock ${path}: ${describe(holder)} holds it`, {
    hint: "wait until it has ended, or remove the file if you know that it has",
    details: { path, ...holder },
  });
}
