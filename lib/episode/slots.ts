/** Admission: at most so many episodes at a time, and a bound on the wait for a slot (episodes §3.1). */
import type { Clock } from "../runtime/clock.ts";

export class Slots {
  #free: number;
  #waiting: (() => void)[] = [];

  constructor(limit: number) {
    this.#free = limit;
  }

  /** Waits at most `ms` for a slot; null when none came free. The slot is held until disposal. */
  async take(ms: number, clock: Clock, signal: AbortSignal): Promise<Disposable | null> {
    if (this.#free > 0) {
      this.#free--;
      return this.#slot();
    }
    const over = new AbortController();
    let admit!: () => void;
    const turn = new Promise<boolean>((resolve) => {
      admit = () => resolve(true);
      this.#waiting.push(admit);
    });
    const timeout = clock.sleep(ms, AbortSignal.any([signal, over.signal])).then(() => false, () => false);
    const admitted = await Promise.race([turn, timeout]);
    over.abort();
    if (admitted) return this.#slot();
    this.#waiting = this.#waiting.filter((one) => one !== admit);
    signal.throwIfAborted();
    return null;
  }

  #slot(): Disposable {
    let held = true;
    return {
      [Symbol.dispose]: () => {
        if (!held) return;
        held = false;
        const next = this.#waiting.shift();
        if (next === undefined) this.#free++;
        else next();
      },
    };
  }
}
