/** The harness that does nothing: what a task scores untouched. */
import type { Clock } from "../runtime/clock.ts";
import type { Agent } from "./agent.ts";
import { plainResponse } from "./response.ts";

export const nop = (clock: Clock): Agent => ({
  name: "nop",
  about: "does nothing: what a task scores untouched",
  needsSolution: false,
  run: () =>
    Promise.resolve({
      response: plainResponse({ id: "resp_nop", model: "nop", createdAt: clock.now(), text: "" }),
      timedOut: false,
      notes: [],
    }),
});
