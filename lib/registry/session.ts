/**
 * Requests to registries with everything that is the same for all of them: admission, retries, limits, credentials.
 * One session lasts as long as the command, so that what it learnt of a registry (a limit, a token) serves all tasks.
 */
import { HarborError } from "../errors.ts";
import type { Clock } from "../runtime/clock.ts";
import { Gate } from "../runtime/pool.ts";
import { Admission, type Patience } from "./admission.ts";
import type { FindCredential } from "./credentials.ts";
import { statusError } from "./failure.ts";
import { isTransient, pauseMs, retryAfterMs, TRIES } from "./retry.ts";
import { credentialsRefused, type Purpose, Tokens } from "./tokens.ts";
import { type Answer, exchange, type Request, type TransportDeps } from "./transport.ts";

const REQUESTS_IN_ALL = 8;
const REQUESTS_PER_REGISTRY = 4;
const MOST_ERROR_BYTES = 64 * 1024;

export interface SessionDeps extends TransportDeps {
  credentials: FindCredential;
  plain: (host: string) => boolean;
  /** In [0, 1): the jitter of pauses. */
  random?: () => number;
}

/** An answer with its place among the requests in flight, which is given back by disposing of it. */
export interface Granted extends Disposable {
  answer: Answer;
}

export interface Ask {
  request: Request;
  purpose: Purpose;
  /** Statuses that are answers; 401, 429 and the transient ones are dealt with before. Anything else is thrown. */
  accept: (status: number) => boolean;
  tries?: number;
  patience?: Patience;
}

export class Session {
  readonly #total = new Gate(REQUESTS_IN_ALL);
  readonly #admissions = new Map<string, Admission>();
  readonly #tokens: Tokens;
  readonly #clock: Clock;

  constructor(private readonly deps: SessionDeps) {
    this.#clock = deps.clock;
    this.#tokens = new Tokens({
      clock: deps.clock,
      credentials: deps.credentials,
      plain: deps.plain,
      send: async (request, host, signal) => {
        using granted = await this.#sent(request, host, { waits: 0 }, TRIES, signal);
        return granted.answer;
      },
    });
  }

  /** Sends it with credentials where they are asked for. Throws HarborError "image.failed", or the signal's reason. */
  async ask(ask: Ask, signal: AbortSignal): Promise<Granted> {
    const { request, purpose, tries = TRIES, patience = { waits: 0 } } = ask;
    const key = request.url.host;
    const own = request.url.origin === purpose.origin;
    let authorization = own ? this.#tokens.known(purpose) : undefined;
    for (let answered = false;;) {
      const headers = { ...request.headers, ...(authorization !== undefined && { authorization }) };
      const granted = await this.#sent({ ...request, headers }, key, patience, tries, signal);
      const { answer } = granted;
      if (answer.status !== 401 || !own) {
        if (ask.accept(answer.status)) return granted;
        using _done = granted;
        throw await refusal(purpose.host, answer);
      }
      using _done = granted;
      await answer.discard();
      if (answered) throw credentialsRefused(purpose.host, 401, answer.path);
      _done[Symbol.dispose](); // a token may be asked of the same host
      authorization = await this.#tokens.answer(purpose, answer, signal);
      answered = true;
    }
  }

  /** One answer that is neither a limit nor a passing fault of the registry. */
  async #sent(request: Request, host: string, patience: Patience, tries: number, signal: AbortSignal) {
    const admission = this.#admission(host);
    for (let attempt = 1;;) {
      const ticket = await admission.enter(signal);
      let error: HarborError;
      try {
        const exchanged = await exchange(this.deps, request, signal);
        if ("answer" in exchanged) {
          const { answer } = exchanged;
          if (answer.status === 429) {
            const waitMs = retryAfterMs(answer.headers.get("retry-after"), this.#clock.now());
            ticket.limited(waitMs, patience, await refusal(host, answer));
            ticket[Symbol.dispose]();
            continue;
          }
          ticket.answered();
          if (!isTransient(answer.status)) {
            return { answer, [Symbol.dispose]: () => ticket[Symbol.dispose]() } satisfies Granted;
          }
          error = await refusal(host, answer);
        } else {
          error = exchanged.unreachable.error;
          if (attempt >= tries || exchanged.unreachable.lasting) {
            admission.unreachable(error);
            throw error;
          }
        }
      } catch (thrown) {
        ticket[Symbol.dispose]();
        throw thrown;
      }
      ticket[Symbol.dispose]();
      if (++attempt > tries) throw error;
      await this.#clock.sleep(pauseMs(attempt, (this.deps.random ?? Math.random)()), signal);
    }
  }

  #admission(host: string): Admission {
    const known = this.#admissions.get(host);
    if (known !== undefined) return known;
    const made = new Admission(REQUESTS_PER_REGISTRY, this.#total, this.#clock);
    this.#admissions.set(host, made);
    return made;
  }
}

async function refusal(host: string, answer: Answer): Promise<HarborError> {
  return statusError(host, answer.status, answer.path, await answer.text(MOST_ERROR_BYTES), answer.isHtml);
}
