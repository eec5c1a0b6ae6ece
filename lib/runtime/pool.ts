/**
 * Runs `work` over `items`, at most `limit` at a time, in order of arrival. Starts nothing after an abort and waits
 * for what runs; the first error of `work` stops admission and is rethrown once all running work has ended.
 * `items` is pulled lazily, so a plan of any length costs only what is in flight.
 */
export async function pool<T>(
  items: Iterable<T> | AsyncIterable<T>,
  limit: number,
  work: (item: T) => Promise<void>,
  signal: AbortSignal,
): Promise<void> {
  const running = new Set<Promise<void>>();
  let failure: { error: unknown } | undefined;
  const begin = async (item: T) => await work(item);
  try {
    for await (const item of items) {
      if (signal.aborted || failure !== undefined) break;
      const one: Promise<void> = begin(item)
        .catch((error: unknown) => void (failure ??= { error }))
        .finally(() => running.delete(one));
      running.add(one);
      if (running.size >= limit) await Promise.race(running);
    }
  } finally {
    await Promise.all(running); // also when `items` itself fails: no work floats
  }
  if (failure !== undefined) throw failure.error;
}

/** One promise per key, shared by all who ask while it runs or after it succeeded; a failure is forgotten. */
export class Shared<V> {
  #promises = new Map<string, Promise<V>>();

  get(key: string, make: () => Promise<V>): Promise<V> {
    const known = this.#promises.get(key);
    if (known !== undefined) return known;
    const made = make();
    this.#promises.set(key, made);
    made.catch(() => this.#promises.delete(key));
    return made;
  }
}

/** Admits at most `limit` holders at a time, first come first served. */
export class Gate {
  #free: number;
  #waiting: (() => void)[] = [];

  constructor(limit: number) {
    this.#free = limit;
  }

  async hold<T>(work: () => Promise<T>): Promise<T> {
    using _place = await this.enter();
    return await work();
  }

  /** A place for as long as it is not disposed of (which may happen twice). Rejects with the signal's reason. */
  async enter(signal?: AbortSignal): Promise<Disposable> {
    signal?.throwIfAborted();
    if (this.#free > 0) this.#free--;
    else await this.#turn(signal);
    let held = true;
    return {
      [Symbol.dispose]: () => {
        if (!held) return;
        held = false;
        const next = this.#waiting.shift();
        if (next !== undefined) next();
        else this.#free++;
      },
    };
  }

  #turn(signal: AbortSignal | undefined): Promise<void> {
    return new Promise<void>((resolve, reject) => {
      const leave = () => {
        this.#waiting.splice(this.#waiting.indexOf(admit), 1);
        reject(signal!.reason);
      };
      const admit = () => {
        signal?.removeEventListener("abort", leave);
        resolve();
      };
      signal?.addEventListener("abort", leave, { once: true });
      this.#waiting.push(admit);
    });
  }
}
