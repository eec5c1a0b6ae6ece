/**
 * How politely one registry is asked: so many requests at a time, one back-off for all who wait, and an end to asking
 * (spec/images-and-sandboxes §5.5).
 *
 * While a registry limits us a single request tries again when the back-off is over; the others wait for its luck. So a
 * thousand waiting requests cost a limited registry one request a round, and after `WAITS` rounds none.
 */
import type { HarborError } from "../errors.ts";
import type { Clock } from "../runtime/clock.ts";
import { Gate } from "../runtime/pool.ts";
import { LONGEST_WAIT_MS, WAITS } from "./retry.ts";

/** How often one piece of work (an image, a blob) has waited for a limit already. */
export interface Patience {
  waits: number;
}

/** The right to one request. Disposing of it makes room; it may be disposed of twice. */
export interface Ticket extends Disposable {
  /** The registry answered something else than 429. */
  answered(): void;
  /**
   * It answered 429 and `waitMs` is what it wants us to wait. Returns when to enter() again is right; throws `error`
   * when this registry is not to be asked again: no time given, too long a time, or too many rounds.
   */
  limited(waitMs: number | undefined, patience: Patience, error: HarborError): void;
}

export class Admission {
  readonly #places: Gate;
  readonly #probe = new Gate(1);
  #givenUp: HarborError | undefined;
  #limited = false;
  #until = 0;
  /** Rounds of waiting so far; a ticket remembers the one it was given in. */
  #round = 0;
  #roundsInARow = 0;
  /** Whether it ever answered anything. */
  #heard = false;

  constructor(perHost: number, private readonly total: Gate, private readonly clock: Clock) {
    this.#places = new Gate(perHost);
  }

  /** Throws the error with which this registry was given up, if it was. */
  throwIfGivenUp(): void {
    if (this.#givenUp !== undefined) throw this.#givenUp;
  }

  /** A host that did not answer at all, now and ever, is not tried again by this command. */
  unreachable(error: HarborError): void {
    if (!this.#heard) this.#givenUp ??= error;
  }

  /** Waits for a place and for the end of a back-off. */
  async enter(signal: AbortSignal): Promise<Ticket> {
    for (;;) {
      this.throwIfGivenUp();
      if (this.#limited) {
        const probe = await this.#probe.enter(signal);
        try {
          if (this.#limited && this.#givenUp === undefined) {
            await this.#backOff(signal);
            return this.#ticket(await this.#place(signal), probe);
          }
        } catch (error) {
          probe[Symbol.dispose]();
          throw error;
        }
        probe[Symbol.dispose]();
        continue;
      }
      const place = await this.#place(signal);
      if (!this.#limited && this.#givenUp === undefined) return this.#ticket(place, undefined);
      place[Symbol.dispose]();
    }
  }

  async #backOff(signal: AbortSignal): Promise<void> {
    for (let rest = this.#until - this.clock.ticks(); rest > 0; rest = this.#until - this.clock.ticks()) {
      await this.clock.sleep(rest, signal);
    }
  }

  /** Of the host first: whoever waits for a busy host must not hold a place that another host could use. */
  async #place(signal: AbortSignal): Promise<Disposable> {
    const own = await this.#places.enter(signal);
    try {
      const shared = await this.total.enter(signal);
      return {
        [Symbol.dispose]: () => {
          shared[Symbol.dispose]();
          own[Symbol.dispose]();
        },
      };
    } catch (error) {
      own[Symbol.dispose]();
      throw error;
    }
  }

  #ticket(place: Disposable, probe: Disposable | undefined): Ticket {
    const round = this.#round;
    return {
      answered: () => {
        this.#heard = true;
        if (probe === undefined) return;
        this.#limited = false;
        this.#roundsInARow = 0;
        probe[Symbol.dispose]();
      },
      limited: (waitMs, patience, error) => {
        this.#heard = true;
        if (round === this.#round) {
          this.#round++;
          this.#roundsInARow++;
        }
        const patient = waitMs !== undefined && waitMs <= LONGEST_WAIT_MS && this.#roundsInARow <= WAITS &&
          ++patience.waits <= WAITS;
        if (!patient) {
          this.#givenUp ??= error;
          throw this.#givenUp;
        }
        this.#limited = true;
        this.#until = Math.max(this.#until, this.clock.ticks() + waitMs);
      },
      [Symbol.dispose]: () => {
        probe?.[Symbol.dispose]();
        place[Symbol.dispose]();
      },
    };
  }
}
