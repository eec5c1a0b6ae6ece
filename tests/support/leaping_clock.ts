/** A Clock whose sleeps take no time: they are written down, and the clock leaps to their end. */
import { type Clock, systemClock } from "../../lib/runtime/clock.ts";

export interface LeapingClock extends Clock {
  /** Every sleep so far, in milliseconds. */
  readonly slept: number[];
}

export function leapingClock(start = new Date("2026-01-01T00:00:00Z")): LeapingClock {
  const slept: number[] = [];
  let ticks = 0;
  return {
    ...systemClock,
    slept,
    now: () => new Date(start.getTime() + ticks),
    ticks: () => ticks,
    sleep: async (ms, signal) => {
      signal?.throwIfAborted();
      slept.push(ms);
      const end = ticks + ms;
      await systemClock.sleep(0, signal); // others get their turn, as they would
      ticks = Math.max(ticks, end);
    },
  };
}
