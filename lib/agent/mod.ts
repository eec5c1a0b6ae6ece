/** The harnesses there are, by the names that `--agent` takes. */
import { HarborError } from "../errors.ts";
import type { Clock } from "../runtime/clock.ts";
import { nearest } from "../suggest.ts";
import type { Agent } from "./agent.ts";
import { nop } from "./nop.ts";
import { oracle } from "./oracle.ts";

const MAKERS: Record<string, (clock: Clock) => Agent> = { harbor_oracle: oracle, oracle, nop };

/** Names of later versions: part of the contract, named instead of unknown. */
const LATER = [
  "terminus_2_agent",
  "simple_agent",
  "codex_agent",
  "claude_code_agent",
  "opencode_agent",
  "hermes_agent",
  "mini_swe_agent",
  "command",
];

/** Every harness of this version, in the order to show them. */
export const agents = (clock: Clock): Agent[] => [oracle(clock), nop(clock)];

/** The harness called `name`. Throws HarborError "usage" with a did-you-mean, "not-built" for one of a later version. */
export function agentNamed(name: string, clock: Clock): Agent {
  const make = Object.hasOwn(MAKERS, name) ? MAKERS[name] : undefined;
  if (make !== undefined) return make(clock);
  const known = "this version has harbor_oracle and nop";
  if (LATER.includes(name)) throw new HarborError("not-built", `--agent ${name}: not in this version`, { hint: known });
  const near = nearest(name, [...Object.keys(MAKERS), ...LATER]);
  throw new HarborError("usage", `--agent ${name}: there is no such agent`, {
    hint: near === undefined ? known : `did you mean ${near}? ${known}`,
  });
}
