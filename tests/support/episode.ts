/** What runEpisode() needs, with fakes at the effects, for tests that change one thing each. */
import { join } from "node:path";
import { agentNamed } from "../../lib/agent/mod.ts";
import { TaskCopies } from "../../lib/episode/copies.ts";
import type { EpisodePlan } from "../../lib/episode/plan.ts";
import type { EpisodeDeps } from "../../lib/episode/run.ts";
import { episodeSettings } from "../../lib/episode/settings.ts";
import type { Event } from "../../lib/events.ts";
import { imageNeedOf } from "../../lib/images/plan.ts";
import { RowMaker } from "../../lib/rollouts/rows.ts";
import { Gate } from "../../lib/runtime/pool.ts";
import { systemClock } from "../../lib/runtime/clock.ts";
import { thisOwner } from "../../lib/sandbox/owner.ts";
import type { Task } from "../../lib/task/task.ts";
import type { FakeProvider } from "./fake_provider.ts";

export const DIGEST = "d".repeat(64);

export const planOf = (task: Task, changes: Partial<EpisodePlan> = {}): EpisodePlan => ({
  task,
  taskIndex: 0,
  digest: DIGEST,
  rolloutIndex: 0,
  attempt: 0,
  ...changes,
});

/** Dependencies that leave their files below `root`; what they emit is kept in `events`. */
export function episodeDeps(
  provider: FakeProvider,
  root: string,
  changes: Partial<EpisodeDeps> & { agentName?: string; digestNow?: string } = {},
): EpisodeDeps & { events: Event[] } {
  const { agentName = "harbor_oracle", digestNow = DIGEST, ...deps } = changes;
  const events: Event[] = [];
  const emit = (event: Event) => void events.push(event);
  return {
    events,
    emit,
    provider,
    agent: agentNamed(agentName, systemClock),
    clock: systemClock,
    owner: thisOwner("testtest"),
    imageOf: (task) => provider.prepare(imageNeedOf(task)),
    composeOf: () => null,
    startGate: new Gate(4),
    scratch: join(root, "scratch"),
    copies: new TaskCopies({
      scratch: join(root, "scratch"),
      digestOf: () => Promise.resolve(digestNow),
      ignored: () => () => false,
      withSolution: agentName === "harbor_oracle",
    }),
    settings: episodeSettings(),
    rows: new RowMaker({
      taskset: "my-dataset",
      taskSource: "my_dataset",
      datasetDigest: "e".repeat(64),
      agentName,
      createParams: {},
    }),
    logsRoot: join(root, "out", "verifier"),
    hostEnv: {},
    hide: [],
    version: "0.0.0",
    keepFailed: false,
    ...deps,
  };
}
