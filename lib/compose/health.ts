/**
 * Whether a service is healthy, asked by commands of our own and not by an engine's timers, which rootless podman does
 * not have (spec/images-and-sandboxes §6.5). One success is enough; nobody asks afterwards.
 *
 * Docker asks for the first time after one interval. We look earlier as well, at growing distances, and such a look does
 * not count when it fails: a service is never given less time than Docker gives it.
 */
import { HarborError, isAbort, messageOf } from "../errors.ts";
import { ending } from "../excerpt.ts";
import type { Clock } from "../runtime/clock.ts";
import type { Command, ExecResult } from "../sandbox/provider.ts";
import type { Healthcheck } from "./plan.ts";

/** What can be asked: a sidecar, or main's sandbox. */
export interface Probed {
  exec(command: Command, signal: AbortSignal): Promise<ExecResult>;
}

const FIRST_PAUSE_MS = 500;
const SHOWN = 600;

/** How long to wait before the next probe, `elapsedMs` after the start and after `looks` of them. Pure. */
export function pauseMs(check: Healthcheck, elapsedMs: number, looks: number): number {
  if (isCounted(check, elapsedMs)) return check.intervalMs;
  const usual = elapsedMs < check.startPeriodMs ? check.startIntervalMs : check.intervalMs;
  return Math.min(usual, FIRST_PAUSE_MS * 2 ** Math.min(looks - 1, 20));
}

/** Whether a failure at this moment counts: after the start period, and not before Docker's own first probe. Pure. */
export function isCounted(check: Healthcheck, elapsedMs: number): boolean {
  return elapsedMs >= Math.max(check.intervalMs, check.startPeriodMs);
}

/** Resolves at the first success; after `retries` failures in a row rejects with what the last probe said. */
export async function untilHealthy(
  check: Healthcheck,
  service: Probed,
  clock: Clock,
  signal: AbortSignal,
): Promise<void> {
  const started = clock.ticks();
  const run = "argv" in check.probe ? { argv: check.probe.argv } : { argv: ["/bin/sh", "-c", check.probe.script] };
  for (let looks = 1, failures = 0;; looks++) {
    const fault = await probe(run, check.timeoutMs, service, signal);
    if (fault === null) return;
    const elapsed = clock.ticks() - started;
    failures = isCounted(check, elapsed) ? failures + 1 : 0;
    if (failures >= check.retries) throw new Unhealthy(`failed its healthcheck ${failures} times: ${fault}`);
    await clock.sleep(pauseMs(check, elapsed, looks), signal);
  }
}

/** Never became healthy; the message goes on after the service's name. */
export class Unhealthy extends Error {
  override readonly name = "Unhealthy";
}

async function probe(
  run: { argv: string[] },
  deadlineMs: number,
  service: Probed,
  signal: AbortSignal,
): Promise<string | null> {
  try {
    const result = await service.exec({ run, purpose: "server", deadlineMs, keepBytes: 8 * 1024 }, signal);
    if (result.ended === "deadline") return `it ran past ${deadlineMs / 1000} s`;
    if (result.exitCode === 0) return null;
    const output = ending(`${result.stdout}${result.stderr}`.trim(), SHOWN);
    return `exit ${result.exitCode}${output === "" ? "" : `: ${output}`}`;
  } catch (error) {
    signal.throwIfAborted();
    if (!(error instanceof HarborError) || isAbort(error)) throw error;
    return messageOf(error); // an engine's hiccup is a probe that failed; a service that ended is seen by who waits for it
  }
}
