/** A blob as one unbroken stream, whatever the connections below it do. */
import { type Clock } from "../runtime/clock.ts";
import { HarborError } from "../errors.ts";
import type { Descriptor } from "./registry.ts";
import { pauseMs, TRIES } from "./retry.ts";
import type { Granted } from "./session.ts";

export interface BlobSource {
  descriptor: Descriptor;
  offset: number;
  /** A 206 from `offset` on, a 200 with everything (a server that ignores Range), or a 416: there is no such byte. */
  open: (offset: number) => Promise<Granted>;
  clock: Clock;
  random?: () => number;
}

/**
 * The bytes from `offset` to the descriptor's size. A connection that breaks off, or ends early, is taken up again where
 * it ended; after `TRIES` in a row without a byte it throws "image.failed". So does a blob that is longer than said.
 */
export async function* blobStream(source: BlobSource, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  const { descriptor: { digest, size }, clock, random = Math.random } = source;
  let at = source.offset;
  for (let fruitless = 0; at < size;) {
    const before = at;
    let broke: unknown;
    using granted = await source.open(at);
    if (granted.answer.status === 416) throw endedEarly(digest, at, size);
    try {
      for await (const chunk of from(granted, at)) {
        at += chunk.length;
        if (at > size) {
          throw new HarborError("image.failed", `blob ${digest} is longer than the ${size} bytes it should have`);
        }
        yield chunk;
      }
    } catch (error) {
      signal.throwIfAborted();
      if (at > size) throw error;
      broke = error;
    }
    if (at >= size) return;
    granted[Symbol.dispose]();
    fruitless = at > before ? 1 : fruitless + 1;
    if (fruitless >= TRIES) {
      throw broke instanceof HarborError ? broke : endedEarly(digest, at, size);
    }
    await clock.sleep(pauseMs(fruitless + 1, random()), signal);
  }
}

const endedEarly = (digest: string, at: number, size: number): HarborError =>
  new HarborError("image.failed", `blob ${digest} ended after ${at} of ${size} bytes`);

/** The body from `offset` on, whether the server began there or at the start. */
async function* from({ answer }: Granted, offset: number): AsyncGenerator<Uint8Array> {
  let skip = offset - beginsAt(answer.status, answer.headers.get("content-range"), offset);
  for await (const chunk of answer.stream()) {
    if (chunk.length <= skip) {
      skip -= chunk.length;
      continue;
    }
    yield skip === 0 ? chunk : chunk.subarray(skip);
    skip = 0;
  }
}

function beginsAt(status: number, contentRange: string | null, asked: number): number {
  if (status !== 206) return 0;
  const begins = /^bytes (\d+)-/.exec(contentRange ?? "")?.[1];
  const first = begins === undefined ? asked : Number(begins);
  if (first > asked) throw new HarborError("image.failed", `the registry sent bytes from ${first}, not from ${asked}`);
  return first;
}
