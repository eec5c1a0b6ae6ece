/**
 * What a task's services need before the agent starts: the image's ENTRYPOINT in the background (episodes §3.2.1,
 * images §7.3) and `[environment.healthcheck]` (§3.2.2).
 */
import { ending } from "../excerpt.ts";
import type { Clock } from "../runtime/clock.ts";
import type { Running, Sandbox } from "../sandbox/provider.ts";
import type { HealthcheckSettings } from "../task/task.ts";
import { EpisodeFailure } from "./failures.ts";

const SHELLS = /^(?:ba|da|a|z|k)?sh$/;
/** How long an ENTRYPOINT may take to show that it fails at once. */
const FIRST_LOOK_MS = 250;
/** What an ENTRYPOINT gets as its command, so that scripts ending in `exec "$@"` stay alive. */
const STAY = ["sh", "-c", "sleep infinity"];

/** The argv to start in the background, or null for an image that has none or a plain shell. Pure. */
export function entrypointArgv(entrypoint: readonly string[]): string[] | null {
  const program = entrypoint[0]?.split("/").at(-1);
  if (program === undefined || (SHELLS.test(program) && !entrypoint.slice(1).some((word) => !word.startsWith("-")))) {
    return null;
  }
  return entrypoint.at(-1) === "-c" ? [...entrypoint, "sleep infinity"] : [...entrypoint, ...STAY];
}

/** Starts it as the image's user in the image's folder; throws EpisodeFailure (seed) when it fails at once. */
export async function startEntrypoint(
  argv: string[],
  image: { user: string; workdir: string },
  box: Sandbox,
  clock: Clock,
  signal: AbortSignal,
): Promise<Running> {
  const running = await box.spawn({
    run: { argv },
    purpose: "server",
    user: image.user === "" ? "root" : image.user,
    cwd: image.workdir,
  });
  await Promise.race([running.wait(), clock.sleep(FIRST_LOOK_MS, signal)]);
  await failedEntrypoint(running);
  return running;
}

/** Throws EpisodeFailure (seed) when the ENTRYPOINT has ended with an error. */
export async function failedEntrypoint(running: Running): Promise<void> {
  const code = await running.poll();
  if (code === null || code === 0) return;
  const message = `the image's ENTRYPOINT exited with ${code}: ${(await running.tail(600)).trim()}`;
  throw new EpisodeFailure(message, { stage: "seed", kind: null, terminal: false });
}

/** Runs the check until it passes. Failures inside the start period do not count; throws EpisodeFailure (seed). */
export async function awaitHealthy(
  check: HealthcheckSettings,
  user: string | undefined,
  box: Sandbox,
  clock: Clock,
  signal: AbortSignal,
): Promise<void> {
  const started = clock.ticks();
  for (let failures = 0;;) {
    const deadlineMs = check.timeout_sec * 1000;
    const result = await box.exec({ run: { script: check.command }, purpose: "server", user, deadlineMs }, signal);
    if (result.ended === "exit" && result.exitCode === 0) return;
    const starting = clock.ticks() - started < check.start_period_sec * 1000;
    if (!starting && ++failures >= check.retries) {
      const output = ending(`${result.stdout}${result.stderr}`.trim(), 600);
      const message = `Healthcheck failed ${failures} times: '${check.command}'${output === "" ? "" : `: ${output}`}`;
      throw new EpisodeFailure(message, { stage: "seed", kind: null, terminal: false });
    }
    await clock.sleep((starting ? check.start_interval_sec : check.interval_sec) * 1000, signal);
  }
}
