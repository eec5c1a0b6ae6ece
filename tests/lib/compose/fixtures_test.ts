/** Every folder of fixtures/broken-compose is refused by name and key; those of fixtures/compose are accepted. */
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { type ComposeReading, readCompose, resolveServices } from "../../../lib/compose/mod.ts";
import { openDataset } from "../../../lib/dataset/load.ts";
import { HarborError } from "../../../lib/errors.ts";
import { resolveTarget } from "../../../lib/target/resolve.ts";
import { imageWith, TASK_IMAGE } from "../../support/compose.ts";

const FIXTURES = join(dirname(fileURLToPath(import.meta.url)), "../../../fixtures");

function read(folder: string): ComposeReading {
  const opened = openDataset(resolveTarget(folder, FIXTURES));
  const [loaded] = [...opened.tasks()];
  assert.ok(loaded?.task, `${folder} loads: ${JSON.stringify(loaded?.errors)}`);
  return readCompose({
    task: loaded.task,
    taskImage: TASK_IMAGE,
    hostEnv: {},
    overlays: [],
    platform: "linux/amd64",
  });
}

/** The refusal, also where it needs the images' configuration. */
function reason(folder: string): string {
  const reading = read(folder);
  if (!reading.ok) return reading.reason;
  const images = Object.fromEntries(reading.plan.services.map(({ name }) => [name, imageWith({ Cmd: ["python3"] })]));
  try {
    resolveServices(reading.plan, images);
    return "accepted";
  } catch (error) {
    assert.ok(error instanceof HarborError);
    return error.message;
  }
}

const REASONS: Record<string, string> = {
  "bad-variable": "service 'web': command has a $ that begins no variable at '$(date)\"' (write $$ for one $); " +
    "service 'web': environment[0] has a ${ that nothing closes at '${HOST'; " +
    "service 'web': environment[1] needs the variable FIXTURE_KEY_THAT_NOBODY_SETS, which is not set: ask the author for it",
  "build-outside": "service 'api': build.context '..' lies outside of environment/; " +
    "service 'api': build.network 'host' is not supported, only default and none; service 'api': build.ssh is not supported",
  circle: "service 'cache': depends_on goes in a circle: cache → web → db → cache",
  "engine-socket": "service 'runner': privileged is not supported; " +
    "service 'runner': volumes[0] source '/var/run/docker.sock' lies outside of environment/",
  "hook-of-nobody": "Artifacts or collect hooks name Compose services that do not exist: ['database']",
  "host-network": "service 'web': network_mode 'host' is not supported, only none and service:<name>",
  misspelt: "service 'web': enviroment is no key of a Compose service (did you mean environment?); " +
    "service 'web': healthcheck.intervall is not supported (did you mean interval?)",
  "mount-outside": "service 'grader': volumes[0] source '../tests' lies outside of environment/; " +
    "service 'grader': volumes[1] source '../..' lies outside of environment/",
  "no-healthcheck":
    "service 'main': depends_on.web waits for service_healthy, but neither file nor image has a healthcheck",
  "no-image": "service 'web': image is missing: a sidecar needs image or build",
  "no-unit": "service 'web': healthcheck.interval is '5', must be a duration with its unit, such as 1m30s; " +
    "service 'web': mem_limit is 'lots', must be a size such as 64m",
  "not-yaml": "environment/docker-compose.yaml:4: ",
  secrets: "secrets is not supported; service 'db': secrets is not supported",
  "several-networks": "service 'db': networks.back is not supported: a group has one network, default; " +
    "service 'web': networks.back is not supported: a group has one network, default; " +
    "service 'web': networks.front is not supported: a group has one network, default",
};

test("readCompose() refuses every fixture that is meant to be refused, with its reason", () => {
  const folders = readdirSync(join(FIXTURES, "broken-compose")).sort();
  assert.deepEqual(folders, Object.keys(REASONS).sort(), "every folder has its row");
  for (const folder of folders) {
    const wanted = `Compose file was refused: ${REASONS[folder]}`;
    const found = reason(join(FIXTURES, "broken-compose", folder));
    assert.equal(folder === "not-yaml" ? found.slice(0, wanted.length) : found, wanted, folder);
  }
});

test("readCompose() accepts the fixtures that a person could run", () => {
  const groups = readdirSync(join(FIXTURES, "compose"), { withFileTypes: true }).filter((one) => one.isDirectory())
    .map(({ name }) => {
      const reading = read(join(FIXTURES, "compose", name));
      assert.ok(reading.ok, reading.ok ? "" : reading.reason);
      return [name, reading.plan.needsGroup, reading.plan.services.map((one) => one.name)];
    }).sort();
  assert.deepEqual(groups, [
    ["compose-alone", false, ["main"]],
    ["compose-migrated", true, ["migrate", "store", "probe", "main"]],
    ["compose-shop", true, ["shop", "main"]],
  ]);
});
