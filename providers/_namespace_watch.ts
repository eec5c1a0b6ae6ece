/** Memory of a sandbox that no control group holds: looked at, and its largest process ended when it is over. */
import type { Clock } from "../lib/runtime/clock.ts";
import { descendants, killAll, memoryKb, residentKb } from "./_namespace_tree.ts";

const LOOK_MS = 100;

export class MemoryWatch implements Disposable {
  #kills = 0;
  readonly #timer: Disposable;

  /** Over everything below the process `init`; `memoryMb` in MiB. */
  constructor(init: number, memoryMb: number, clock: Pick<Clock, "every">) {
    this.#timer = clock.every(LOOK_MS, () => this.#look(init, memoryMb * 1024));
  }

  /** How many processes were ended so far. */
  get kills(): number {
    return this.#kills;
  }

  #look(init: number, limitKb: number): void {
    const pids = descendants(init).map(({ pid }) => pid);
    // Resident size counts shared pages whole: quick, and never too small.
    if (pids.reduce((sum, pid) => sum + residentKb(pid), 0) <= limitKb) return;
    const sizes = pids.map((pid) => ({ pid, kb: memoryKb(pid) }));
    if (sizes.reduce((sum, { kb }) => sum + kb, 0) <= limitKb) return;
    killAll([sizes.reduce((one, other) => (other.kb > one.kb ? other : one)).pid]);
    this.#kills++;
  }

  [Symbol.dispose](): void {
    this.#timer[Symbol.dispose]();
  }
}
