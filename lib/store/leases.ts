/**
 * Who uses what of a shared folder right now, so that a clean-up takes nothing away from a running process: one small
 * file per process, `.leases/<token>`, with its identity and the ids that it uses. Files of dead processes of this
 * machine go with the next lease or clean-up; those of other machines count while their heartbeat goes on.
 */
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Clock } from "../runtime/clock.ts";
import { isAlive, type ProcessIdentity, thisProcess } from "../runtime/process_identity.ts";

const LEASES = ".leases";
const HEARTBEAT_MS = 10 * 60_000;
/** Silence after which a process of another machine counts as dead. */
const SILENT_MS = 24 * 3_600_000;

/** What this process holds in one folder. */
export class Leases {
  #ids = new Set<string>();
  #path: string | undefined;

  constructor(private readonly folder: string, private readonly clock: Clock) {}

  /** Says that this process uses `ids` until it ends. Throws the Node error where no file can be made. */
  hold(ids: Iterable<string>): void {
    const known = this.#ids.size;
    for (const id of ids) this.#ids.add(id);
    if (this.#ids.size === known) return;
    if (this.#path === undefined) {
      mkdirSync(join(this.folder, LEASES), { recursive: true, mode: 0o755 });
      heldIds(this.folder, this.clock);
      this.#path = join(this.folder, LEASES, crypto.randomUUID());
      this.clock.every(HEARTBEAT_MS, () => {
        try {
          this.#write();
        } catch {
          // a server that is away for a moment: the next beat tells
        }
      });
    }
    this.#write();
  }

  /** In one step: half of the ids would be read as all of them. */
  #write(): void {
    const temp = `${this.#path}.tmp`;
    writeFileSync(temp, [JSON.stringify(thisProcess()), ...this.#ids, ""].join("\n"));
    renameSync(temp, this.#path!);
  }
}

/** Ids that living processes hold in `folder`; leases of dead ones are removed. */
export function heldIds(folder: string, clock: Clock): Set<string> {
  const held = new Set<string>();
  for (const name of names(join(folder, LEASES))) {
    const path = join(folder, LEASES, name);
    try {
      const [first = "", ...ids] = readFileSync(path, "utf8").split("\n");
      const silentMs = clock.now().getTime() - statSync(path).mtimeMs;
      const alive = isAlive(JSON.parse(first) as ProcessIdentity) ?? silentMs < SILENT_MS;
      if (!alive) rmSync(path, { force: true });
      else for (const id of ids) if (id !== "") held.add(id);
    } catch {
      // removed by another clean-up, or not one of ours
    }
  }
  return held;
}

function names(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}
