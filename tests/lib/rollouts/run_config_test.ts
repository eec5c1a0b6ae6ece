import assert from "node:assert/strict";
import { test } from "node:test";
import { parse } from "yaml";
import type { PlannedTask } from "../../../lib/episode/plan.ts";
import { runConfig } from "../../../lib/rollouts/run_config.ts";

const facts = {
  taskset: "my-dataset",
  taskSource: "my_dataset",
  folder: "/data/my-dataset",
  datasetDigest: "e",
  agentName: "nop",
  sandbox: "docker",
  settings: {},
  sandboxOptions: {},
  builds: { platform: "linux/amd64" },
  records: { "/data/my-dataset/built-images.json": "f00d" },
};
const task = { task: { id: "hello", relativePath: "deep/hello" }, digest: "d", taskIndex: 0 } as PlannedTask;

test("runConfig() maps tasks to folders and digests, and names what runs them", () => {
  assert.deepEqual(parse(runConfig([task], facts)), {
    tasksets: {
      "my-dataset": {
        folder: "/data/my-dataset",
        task_source: "my_dataset",
        dataset_digest: "e",
        tasks: { hello: { path: "deep/hello", digest: "d" } },
      },
    },
    harbor_environment_server: { environment_servers: { harbor: { sandbox_provider: "docker" } } },
    nop: { responses_api_agents: { nop: {} } },
    builds: { tool: null, repository: null, platform: "linux/amd64" },
    image_records: { "/data/my-dataset/built-images.json": "f00d" },
  });
});

test("G1: runConfig() masks what stands under a secret's name, and nothing else", () => {
  const settings = { sandbox_env: { API_KEY: "sk-1", LANG: "C" }, queue_timeout_seconds: 5 };
  const sandboxOptions = { docker: { tokens: ["a"], pids_limit: 9 } };
  const config = parse(runConfig([], { ...facts, settings, sandboxOptions }));
  assert.deepEqual(config.harbor_environment_server.environment_servers.harbor, {
    sandbox_provider: "docker",
    sandbox_env: { API_KEY: "****", LANG: "C" },
    queue_timeout_seconds: 5,
  });
  assert.deepEqual(config.sandbox, { docker: { tokens: ["****"], pids_limit: 9 } });
});
