/** Records of a run's summary, for tests of what is told about them. */
import type { Entry, TaskRecord } from "../../lib/report/summary.ts";

/** A solved task that scored 1, with changes. */
export function record(
  id: string,
  changes: Partial<Entry> = {},
  reason: string | null = null,
  seconds = 1.5,
): TaskRecord {
  return {
    entry: {
      taskset: "my-dataset",
      task_id: id,
      task_index: 0,
      rollout_index: 0,
      status: "result",
      reward: 1,
      mask_sample: false,
      failure_kind: null,
      response_metadata: { oracle: "solved" },
      sandbox: { provider: "docker", network: "public", limits: "enforced", notes: [] },
      paths: {
        verifier_logs: `verifier/session-${id}`,
        test_stdout: `verifier/session-${id}/test-stdout.txt`,
        trajectory: null,
        entrypoint_stdout: null,
        artifacts: null,
      },
      missing_paths: [],
      input: { _ng_digest: "d", _ng_dataset_digest: "e", metadata: {} },
      ...changes,
    },
    seconds,
    reason,
  };
}
