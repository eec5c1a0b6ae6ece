/**
 * Time as an effect. Wall time stamps rows; monotonic ticks measure durations, so a clock step or a change of
 * daylight saving never yields a negative duration (field case I7).
 */
export interface Clock {
  /** Wall time, UTC. */
  now(): Date;
  /** Monotonic milliseconds from an arbitrary origin. */
  ticks(): number;
  /** Waits, or rejects with the signal's reason. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** A signal that aborts after `ms` (reason: TimeoutError) or with `parent`. Infinity means no limit of its own. */
  deadline(ms: number, parent?: AbortSignal): AbortSignal;
  /** Calls `act` once after `ms`, unless it is disposed of before. Longer than any timer: never. */
  after(ms: number, act: () => void): Disposable;
  /** Calls `act` every `ms` until it is disposed of. No reason for the process to stay. */
  every(ms: number, act: () => void): Disposable;
}

/** Longer timers fire at once (Node's API keeps a signed 32-bit number). */
export const LONGEST_TIMER_MS = 2 ** 31 - 1;

export const systemClock: Clock = {
  now: () => new Date(),
  ticks: () => performance.now(),
  sleep(ms, signal) {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const stop = () => {
        clearTimeout(timer);
        reject(signal!.reason);
      };
      const timer = setTimeout(() => {
        signal?.removeEventListener("abort", stop);
        resolve();
      }, Math.min(ms, LONGEST_TIMER_MS));
      signal?.addEventListener("abort", stop, { once: true });
    });
  },
  deadline(ms, parent) {
    const own = ms > LONGEST_TIMER_MS ? undefined : AbortSignal.timeout(Math.max(0, Math.ceil(ms)));
    if (own === undefined) return parent ?? new AbortController().signal;
    return parent === undefined ? own : AbortSignal.any([parent, own]);
  },
  after(ms, act) {
    const timer = ms > LONGEST_TIMER_MS ? undefined : setTimeout(act, Math.max(0, ms));
    return { [Symbol.dispose]: () => clearTimeout(timer) };
  },
  every(ms, act) {
    const timer = setInterval(act, ms);
    (timer as { unref?: () => void }).unref?.();
    return { [Symbol.dispose]: () => clearInterval(timer) };
  },
};

/** Whether `work` comes to an end, good or bad, within `ms`. Leaves no timer behind. */
export async function settlesWithin(work: Promise<unknown>, ms: number, clock: Clock): Promise<boolean> {
  let timer: Disposable | undefined;
  const late = new Promise<boolean>((resolve) => timer = clock.after(ms, () => resolve(false)));
  const settled = () => true;
  return await Promise.race([work.then(settled, settled), late]).finally(() => timer?.[Symbol.dispose]());
}
