/** Every folder of fixtures/broken says what is wrong with it: where, what was found, what is wanted, what to do. */
import { test } from "node:test";
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { openDataset } from "../../../lib/dataset/load.ts";
import { resolveTarget } from "../../../lib/target/resolve.ts";
import type { Finding } from "../../../lib/task/task.ts";

const root = join(dirname(fileURLToPath(import.meta.url)), "../../../fixtures/broken");

/** Folder → code of its first error (or warning) → words of its message that name place, found and wanted. */
const ERRORS: Record<string, [code: string, ...words: string[]]> = {
  "artifact-destination-absolute": ["artifact.destination", "artifacts[0].destination", '"/y"', "must be relative"],
  "artifact-escapes": ["artifact.path", "artifacts[0]", '"/app/../etc/shadow"', "must stay inside the sandbox"],
  "artifact-sidecar-relative": ["artifact.sidecar", "artifacts[0].source", '"log"', "absolute", "'db'"],
  "dataset-broken-toml": ["dataset.syntax", "dataset.toml", '"[gym"'],
  "dataset-tasks-misplaced": ["dataset.misplaced-tasks", "dataset.toml", "dataset has no tasks; found dataset.tasks"],
  "dataset-tasks-not-here": [
    "dataset.listed-missing",
    "dataset.toml",
    "lists 1 tasks",
    "no task folder lies beside it",
  ],
  "dataset-without-tasks": [
    "target.no-tasks",
    "neither a task folder nor a folder of task folders",
    "no task.toml found",
  ],
  "duplicate-id": ["task.duplicate-id", "'same'", "duplicate-id/a/same", "duplicate-id/b/same"],
  "environment-is-a-file": ["environment.not-a-folder", "environment is a file", "must be a folder"],
  "gym-multiplier-zero": ["dataset.gym", "dataset.toml [gym]", "timeout_multiplier is 0", "above 0"],
  "gym-not-a-table": ["dataset.gym", "[gym] must be a table"],
  "gym-repeats-zero": ["dataset.gym", "num_repeats is 0", "1 or more"],
  "gym-unknown-default": ["dataset.gym", "`timeout_multiplyer` in [gym.defaults]"],
  "gym-unknown-key": ["dataset.gym", "unknown key `licence`"],
  "harborignore-hides-test": ["tests.ignored", "Required task input is excluded by .harborignore: tests/test.sh"],
  "harborignore-not-utf8": ["harborignore.invalid", "tests/.harborignore", "not UTF-8"],
  "host-is-a-url": ["network.bad-host", "allowed_hosts[0]", '"https://pypi.org"', "without scheme"],
  "hosts-without-allowlist": [
    "network.hosts-without-allowlist",
    "environment.allowed_hosts",
    'network_mode = "allowlist"',
  ],
  "instruction-not-utf8": ["instruction.encoding", "instruction.md", "0xe9 at offset 3"],
  "linked-folder": ["link.folder", "tests/link", "symbolic link to a folder"],
  "linked-task": ["task.symlink", "linked-task/link is a symbolic link"],
  "mcp-bad-transport": [
    "toml.type",
    "mcp_servers[0].transport",
    '"websocket"',
    '"stdio" or "sse" or "streamable-http"',
  ],
  "mcp-secret-in-header": ["mcp.invalid", "'search'", '"Authorization"', "${NAME}"],
  "mcp-without-endpoint": ["mcp.invalid", "MCP server 'search': stdio needs `command`, other transports need `url`"],
  "no-instruction": ["instruction.missing", "no-instruction has no instruction.md"],
  "no-task-toml": ["target.no-tasks", "no task.toml found"],
  "no-tests": ["tests.missing", "no-tests has no tests/ folder"],
  "override-agent-table": ["dataset.override", '[gym.tasks."hello"] has unknown keys: `agent`'],
  "override-bad-input": ["dataset.override", '"../reward.txt"', "relative path below /logs/verifier"],
  "override-bad-value": ["dataset.override", '[gym.tasks."hello"]', "environment.cpus is -1", "above 0"],
  "override-unknown-key": ["dataset.override", '[gym.tasks."hello".environment] has unknown keys: `memory_md`'],
  "override-unknown-task": ["dataset.override-unknown-task", '[gym.tasks."helo"] names no task folder'],
  "separate-without-tests": ["tests.no-grader", "tests has no test.sh or verifier.py"],
  "shared-verifier-with-environment": [
    "verifier.shared-environment",
    "A shared verifier cannot declare its own [verifier.environment]",
  ],
  "step-folder-missing": ["step.folder", "Step directory not found", "steps/deploy"],
  "step-instruction-missing": ["step.instruction", "Step instruction not found", "steps/deploy/instruction.md"],
  "step-name-escapes": ["step.name", "steps[1].name", '"../deploy"', 'holds "/"'],
  "step-name-twice": ["step.duplicate", "steps[1].name", '"Build"', "steps[0]"],
  "step-network-changes": ["network.changes", "agent's network_mode", "public, then no-network"],
  "step-without-tests": ["step.tests", "step 'deploy'", "steps/deploy/tests/test.sh or tests/test.sh"],
  "task-data-broken": ["task-data.invalid", "task_data.json", "not valid JSON"],
  "task-data-not-an-object": ["task-data.invalid", "task_data.json", "[1]", "one JSON object"],
  "task-data-reserved": ["task-data.reserved", "'_ng_digest'", "reserved"],
  "template": ["task.template", "tasks.jsonl", "not in this version"],
  "tests-without-grader": ["tests.no-grader", "tests has no test.sh or verifier.py"],
  "too-deep": ["target.no-tasks", "no task.toml found"],
  "toml-bom": ["toml.syntax", "task.toml", "byte order mark"],
  "toml-broken": ["toml.syntax", "task.toml", '"[environment"'],
  "toml-duplicate-key": ["toml.syntax", "defined twice", '"cpus = 2"'],
  "toml-env-number": ["toml.type", "environment.env.PORT is 8080", "text in quotes"],
  "toml-lone-cr": ["toml.syntax", "carriage return without a line feed"],
  "toml-memory-infinite": ["size.invalid", "environment.memory", "'infG'", "K, M or G"],
  "toml-memory-suffix": ["size.invalid", "environment.memory", "'2Gi'", "K, M or G"],
  "toml-nan": ["toml.not-finite", "metadata.score is nan", "finite"],
  "toml-negative-timeout": ["toml.range", "agent.timeout_sec is -5", "above 0"],
  "toml-not-utf8": ["toml.encoding", "task.toml", "0xf6 at offset 22"],
  "toml-size-conflict": ["size.conflict", "Conflicting `memory` and `memory_mb`", "2048", "2000"],
  "toml-wrong-type": ["toml.type", 'environment.cpus is "two"', "a number"],
  "toml-zero-cpus": ["toml.range", "environment.cpus is 0", "above 0"],
  "windows": ["os.windows", 'environment.os is "windows"', '"linux"'],
};

/** These load, and say what is odd. */
const WARNINGS: Record<string, [code: string, ...words: string[]]> = {
  "allowlist": ["network.allowlist", "environment.network_mode", '"allowlist", which is not in this version'],
  "crlf-test-sh": ["script.crlf", "tests/test.sh has CRLF line endings"],
  "gym-unknown-license": ["dataset.unknown-value", 'license is "WTFPL"', "Apache 2.0"],
  "no-environment": ["image.none", "Task 'no-environment' declares no image", "docker_image"],
  "no-image": [
    "image.none",
    "Task 'no-image' declares no image",
    "only --sandbox host",
    "environment has no Dockerfile",
  ],
  "package-without-name": ["package.unnamed", "[task] has no name"],
  "seed-trajectory": ["trajectory.ignored", "trajectory.json is a seed trajectory"],
  "toml-artifacts-below-table": ["toml.unknown-key", "ignoring unknown key `environment.artifacts`"],
  "toml-memory-number": ["size.ignored", "environment.memory = 4096", '"2G"'],
  "toml-unknown-key": ["toml.unknown-key", "ignoring unknown key `environment.memory_md`"],
};

/** All findings of the dataset and its tasks, first those of the dataset. */
function findings(folder: string): { errors: Finding[]; warnings: Finding[] } {
  const dataset = openDataset(resolveTarget(folder, root));
  const tasks = [...dataset.tasks()];
  return {
    errors: [...dataset.errors, ...tasks.flatMap((one) => one.errors)],
    warnings: [...dataset.warnings, ...tasks.flatMap((one) => one.warnings)],
  };
}

for (const [folder, [code, ...words]] of Object.entries(ERRORS)) {
  test(`fixtures/broken/${folder} is refused: ${code}`, () => {
    const { errors } = findings(folder);
    const [first] = errors;
    assert.equal(first?.code, code, JSON.stringify(errors));
    assert.ok(first!.message.includes(folder), `the message names the place: ${first!.message}`);
    for (const word of words) assert.ok(first!.message.includes(word), `${word} in: ${first!.message}`);
    for (const one of errors) assert.ok(one.hint, `a next step for ${one.code}`);
    assert.ok(!first!.message.includes("\n"), "one line");
  });
}

for (const [folder, [code, ...words]] of Object.entries(WARNINGS)) {
  test(`fixtures/broken/${folder} loads with a warning: ${code}`, () => {
    const { errors, warnings } = findings(folder);
    assert.deepEqual(errors, []);
    assert.equal(warnings[0]?.code, code);
    for (const word of words) assert.ok(warnings[0]!.message.includes(word), `${word} in: ${warnings[0]!.message}`);
  });
}

test("every folder of fixtures/broken has its row", () => {
  const rows = [...Object.keys(ERRORS), ...Object.keys(WARNINGS)].sort();
  assert.deepEqual(readdirSync(root).sort(), rows);
});
