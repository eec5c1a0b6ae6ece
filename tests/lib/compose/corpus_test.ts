/**
 * Compose files that people wrote, each with its verdict. Files of other names are data to the loader; here they are
 * read as if they were the task's, since others write the same.
 */
import assert from "node:assert/strict";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { type ComposeReading, readCompose } from "../../../lib/compose/mod.ts";
import { TASK_IMAGE } from "../../support/compose.ts";
import { writeTree } from "../../support/tree.ts";

const DATA = process.env.GYM_HARBOR_DATA;

/** The end of a path → services in start order when it is accepted, else the beginning of each reason. */
const VERDICTS: Record<string, string[] | { refused: string[] }> = {
  "cpp_0__explain_describe/environment/docker-compose.yaml": {
    refused: ["service 'main': volumes[2] source '../..' lies outside of environment/"],
  },
  "cpp_23__explain_synthesize/environment/docker-compose.yaml": ["main"],
  "acp_smoke/environment/docker-compose.yaml": ["main"],
  "computer-use-ubuntu/environment/docker-compose.yaml": ["desktop", "main"],
  "computer-use-windows/environment/docker-compose.yaml": ["desktop", "main"],
  "mcp-tools/environment/docker-compose.yaml": ["mcp-server", "main"],
  "multi-container/environment/docker-compose.yaml": ["api-server", "main"],
  "simulated-user/environment/docker-compose.yaml": ["user-server", "main"],
  "docker_build_cache_invalidation_hard/environment/docker-compose.yml": {
    refused: [
      "service 'db': networks.backend",
      "service 'redis': networks.backend",
      "service 'scheduler': networks.backend",
    ],
  },
  "docker_compose_env_file_substitution_hard/environment/docker-compose.yml": {
    refused: [
      "service 'cache': environment[0] has '${REDIS_MAXMEMORY:256mb}', which is no form",
      "service 'message_queue': environment[0] has a ${ that nothing closes",
      "service 'message_queue': environment[1] has a $ that begins no variable at '$(RABBITMQ_PASS)'",
    ],
  },
  "docker_compose_env_file_substitution_medium/environment/docker-compose.yml": {
    refused: ["service 'database': environment[0] has a ${ that nothing closes"],
  },
  "docker_compose_override_environment_medium/environment/docker-compose.dev.yml": {
    refused: ["service 'web': image is missing", "service 'worker': image is missing"],
  },
  "docker_compose_override_environment_medium/environment/docker-compose.production.yml": {
    refused: ["service 'web': image is missing", "service 'worker': deploy.replicas is 4"],
  },
  "docker_compose_override_environment_medium/environment/docker-compose.staging.yml": {
    refused: ["service 'web': image is missing", "service 'worker': deploy.replicas is 2"],
  },
  "docker_compose_override_environment_medium/environment/docker-compose.yml": {
    refused: ["service 'web': networks.app-network", "service 'worker': networks.app-network"],
  },
  "docker_healthcheck_interval_tuning_hard/environment/docker-compose.yml": {
    refused: ["api_gateway is no key of a Compose file", "cache is no key"],
  },
  "gitlab_ci_pipeline_exploitation_hard/environment/docker-configs/docker-compose.yml": {
    refused: ["service 'minio': environment[1] has a $ that begins no variable"],
  },
};

function composeFiles(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return composeFiles(path);
    return /^(?:docker-)?compose.*\.ya?ml$/.test(entry.name) ? [path] : [];
  });
}

/** Reads it in a copy of its folder, as environment/docker-compose.yaml of a task that builds a Dockerfile. */
function read(file: string): ComposeReading {
  using tree = writeTree({});
  const environment = tree.at("environment");
  mkdirSync(environment);
  cpSync(dirname(file), environment, { recursive: true, verbatimSymlinks: true });
  if (basename(file) !== "docker-compose.yaml") cpSync(file, join(environment, "docker-compose.yaml"));
  if (!existsSync(join(environment, "Dockerfile"))) writeFileSync(join(environment, "Dockerfile"), "");
  return readCompose({
    task: {
      id: "task",
      folder: tree.path,
      environment: { env: {}, cpus: 2, memory_mb: 2048 } as unknown as Parameters<
        typeof readCompose
      >[0]["task"]["environment"],
      image: { mode: "compose", uploads: false, dockerfile: join(environment, "Dockerfile") },
      verifier: { collect: [] } as unknown as Parameters<typeof readCompose>[0]["task"]["verifier"],
      artifacts: [],
    },
    taskImage: TASK_IMAGE,
    hostEnv: { ANTHROPIC_API_KEY: "sk-secret", DAYTONA_API_KEY: "dtn-secret" },
    overlays: [],
    platform: "linux/amd64",
  });
}

for (const part of ["inputs", "real-tasks"]) {
  const folder = DATA === undefined ? undefined : join(DATA, part);
  const skip = folder === undefined || !existsSync(folder) ? `GYM_HARBOR_DATA names no folder with ${part}` : false;
  test(`readCompose() judges the Compose files of ${part}`, { skip }, () => {
    for (const file of composeFiles(folder!)) {
      const [, verdict] = Object.entries(VERDICTS).find(([end]) => file.endsWith(`/${end}`)) ?? [];
      const reading = read(file);
      const text = readFileSync(file, "utf8");
      assert.ok(verdict, `no verdict for ${file}: ${JSON.stringify(reading).slice(0, 300)}\n${text.slice(0, 500)}`);
      if (Array.isArray(verdict)) {
        assert.ok(reading.ok, reading.ok ? "" : `${file}: ${reading.reason}`);
        assert.deepEqual(reading.plan.services.map(({ name }) => name), verdict, file);
      } else {
        assert.ok(!reading.ok, `${file} is accepted`);
        const reasons = reading.reason.replace(/^Compose file was refused: /, "").split("; ");
        verdict.refused.forEach((wanted, index) =>
          assert.ok(reasons[index]?.startsWith(wanted), `${file}: ${reasons[index]}`)
        );
        assert.doesNotMatch(reading.reason, /sk-secret|dtn-secret/);
      }
    }
  });
}
