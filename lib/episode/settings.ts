/** Settings of an episode (episodes §2), as `harbor_environment_server.<key>=…` gives them. Seconds, as there. */
import { z } from "zod";
import { HarborError } from "../errors.ts";

const seconds = z.number().positive();

export const EpisodeSettings = z.looseObject({
  /** Episodes at a time besides --concurrency; waits in the queue are then bounded. */
  max_concurrent_episodes: z.int().positive().nullable().default(null),
  queue_timeout_seconds: seconds.nullable().default(null),
  /** Hard cap of an episode, seed to verification. */
  default_episode_timeout_seconds: seconds.default(21_600),
  cleanup_timeout_seconds: seconds.default(120),
  /** False drops only the task's own budget. */
  enforce_task_timeouts: z.boolean().default(true),
  harness_setup_allowance_s: z.number().nonnegative().default(300),
  sandbox_ready_timeout_s: seconds.default(900),
  sandbox_ttl_slack_s: z.number().nonnegative().default(900),
  sandbox_setup_timeout_s: seconds.default(600),
  verifier_grace_s: z.number().nonnegative().default(30),
  /** Environment of every sandbox; the task's own wins. */
  sandbox_env: z.record(z.string(), z.union([z.string(), z.number(), z.boolean()]).transform(String)).default({}),
  /** Shell commands run as root in every sandbox before the agent. */
  sandbox_setup_commands: z.array(z.string()).default([]),
  /** Compose files that go over every task's own, in order; they make a group of every task. */
  compose_overlay: z.union([z.string().transform((path) => [path]), z.array(z.string())]).default([]),
});
export type EpisodeSettings = z.infer<typeof EpisodeSettings>;

/** Names of the settings there are, for did-you-mean. */
export const SETTING_NAMES: readonly string[] = Object.keys(EpisodeSettings.shape);

/** Throws HarborError "usage" naming the key, the value found and the value wanted. */
export function episodeSettings(given: Readonly<Record<string, unknown>> = {}): EpisodeSettings {
  const parsed = EpisodeSettings.safeParse(given);
  if (!parsed.success) {
    const issue = parsed.error.issues[0]!;
    const found = issue.path.reduce<unknown>((inner, part) => (inner as Record<PropertyKey, unknown>)?.[part], given);
    throw new HarborError(
      "usage",
      `harbor_environment_server.${issue.path.join(".")} is ${JSON.stringify(found)}: ${issue.message}`,
      { hint: "times are in seconds; leave the key out for its default" },
    );
  }
  const settings = parsed.data;
  if (settings.max_concurrent_episodes !== null && settings.queue_timeout_seconds === null) {
    throw new HarborError("usage", "queue_timeout_seconds is required when max_concurrent_episodes is enabled", {
      hint: "for example harbor_environment_server.queue_timeout_seconds=3600",
    });
  }
  return settings;
}
