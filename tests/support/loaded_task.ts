/** A task folder on disk and the Task value a loader would make of it, for tests that do not test the loader. */
import { join } from "node:path";
import type { Task } from "../../lib/task/task.ts";
import { type Files, writeFiles } from "./tasks.ts";

export const PLAIN_FILES = {
  "task.toml": '[environment]\ndocker_image = "plain:1"\n',
  "instruction.md": "Create hello.txt with the word hi.\n",
  "tests/test.sh": "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n",
  "solution/solve.sh": "#!/bin/bash\necho hi > hello.txt\n",
};

/** A plain prebuilt-image task in `root/id`, its files written. */
export function plainTask(root: string, id = "hello", changes: Partial<Task> = {}, files: Files = {}): Task {
  const folder = join(root, id);
  writeFiles(folder, { ...PLAIN_FILES, ...files });
  return {
    id,
    folder,
    datasetFolder: root,
    relativePath: id,
    agent: { timeout_sec: 900 },
    environment: {
      docker_image: "plain:1",
      build_timeout_sec: 600,
      os: "linux",
      env: {},
      mcp_servers: [],
    },
    verifier: { timeout_sec: 600, env: {}, collect: [], inputs: [] },
    solutionEnv: {},
    artifacts: [],
    multi_step_reward_strategy: "mean",
    instruction: "Create hello.txt with the word hi.\n",
    steps: [],
    grader: { kind: "test.sh", tests: join(folder, "tests") },
    solution: { kind: "solve.sh", folder: join(folder, "solution") },
    taskData: {},
    image: { mode: "prebuilt", reference: "plain:1", uploads: false },
    verifierMode: "shared",
    contextHash: null,
    warnings: [],
    ...changes,
  };
}
