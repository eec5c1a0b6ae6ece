/** Whether a registry answers from here, and with a login or without: a look for `doctor`, never part of a run. */
import { messageOf } from "../errors.ts";
import { HUB } from "../images/reference.ts";
import type { FindCredential } from "./credentials.ts";
import { endpointsOf } from "./endpoints.ts";
import type { RegistrySettings } from "./settings.ts";
import { exchange, type TransportDeps } from "./transport.ts";

export interface Reach {
  /** Common name of the registry. */
  host: string;
  /** Address that was asked: the first mirror where there are some. */
  address: string;
  answers: boolean;
  /** Whether this user's files or helpers hold a login for it. */
  login: boolean;
  /** Why it does not answer. */
  reason?: string;
}

export interface ReachDeps extends TransportDeps {
  settings: RegistrySettings;
  credentials: FindCredential;
}

/** Longest wait for one registry, in milliseconds. */
const ANSWER_MS = 5_000;

/** Docker Hub and every host that is set up, each asked for `/v2/` once (OCI distribution-spec: 200 or 401). */
export function reachAll(hosts: Iterable<string>, deps: ReachDeps, signal: AbortSignal): Promise<Reach[]> {
  const all = [...new Set([HUB, ...deps.settings.keys(), ...hosts])];
  return Promise.all(all.map((host) => reach(host, deps, signal)));
}

async function reach(host: string, deps: ReachDeps, signal: AbortSignal): Promise<Reach> {
  const endpoint = endpointsOf(host, deps.settings)[0]!; // never empty
  const login = await deps.credentials(endpoint.host, "", signal) !== undefined;
  const facts = { host, address: endpoint.origin, login };
  const url = new URL(`${endpoint.origin}/v2/`);
  try {
    const sent = await exchange(deps, { method: "GET", url, headers: {}, answerMs: ANSWER_MS }, signal);
    if ("unreachable" in sent) return { ...facts, answers: false, reason: sent.unreachable.error.message };
    const { status } = sent.answer;
    await sent.answer.discard();
    return status === 200 || status === 401
      ? { ...facts, answers: true }
      : { ...facts, answers: false, reason: `HTTP ${status} for /v2/: no registry` };
  } catch (error) {
    signal.throwIfAborted();
    return { ...facts, answers: false, reason: messageOf(error) };
  }
}
