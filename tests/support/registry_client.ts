/** A registry client for tests: a clock that leaps, no logins, no jitter. */
import type { Event } from "../../lib/events.ts";
import { parseReference } from "../../lib/images/reference.ts";
import { RegistryClient, type RegistryDeps } from "../../lib/registry/client.ts";
import type { RemoteImage } from "../../lib/registry/registry.ts";
import { leapingClock } from "./leaping_clock.ts";

export function testClient(given: Partial<RegistryDeps> = {}, signal = new AbortController().signal) {
  const clock = leapingClock();
  const events: Event[] = [];
  const registry = new RegistryClient({
    fetch,
    clock,
    emit: (event) => events.push(event),
    settings: new Map(),
    credentials: () => Promise.resolve(undefined),
    random: () => 1,
    ...given,
  });
  const image = (reference: string, platform = "linux/amd64"): Promise<RemoteImage> =>
    registry.image(parseReference(reference), platform, signal);
  return { registry, image, clock, events };
}

/** The bytes of a stream, one character each. */
export async function collected(stream: AsyncIterable<Uint8Array>): Promise<string> {
  let text = "";
  for await (const chunk of stream) text += new TextDecoder("latin1").decode(chunk);
  return text;
}
