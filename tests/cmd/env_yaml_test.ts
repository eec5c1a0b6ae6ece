import { test } from "node:test";
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { readEnvYaml } from "../../cmd/_env_yaml.ts";
import { parseOverrides } from "../../cmd/_overrides.ts";
import { TempFolder } from "../support/tasks.ts";

function read(text: string, words: string[] = []) {
  using folder = new TempFolder("envyaml");
  writeFileSync(folder.join("env.yaml"), text);
  return parseOverrides(words, readEnvYaml(folder.path));
}

test("env.yaml gives the same keys as overrides, nested or dotted", () => {
  const overrides = read(
    "builds:\n  tool: podman\n  concurrency: 2\nbuilds.force: true\nregistries:\n  127.0.0.1:5000: {insecure: true}\n" +
      "  docker.io: {mirrors: [https://m.local]}\nharbor_environment_server: {sandbox_env: {A: b}}\n",
  );
  assert.deepEqual(overrides.builds, { tool: "podman", concurrency: 2, force: true });
  assert.deepEqual(overrides.registries.get("127.0.0.1:5000"), { insecure: true, mirrors: [] });
  assert.deepEqual(overrides.registries.get("docker.io")?.mirrors, ["https://m.local"]);
  assert.deepEqual(overrides.harbor_environment_server, { sandbox_env: { A: "b" } });
});

test("the command line wins over env.yaml", () => {
  const { builds } = read("builds: {tool: podman, force: true}\n", ["++builds.tool=docker"]);
  assert.deepEqual(builds, { tool: "docker", force: true });
});

test("no env.yaml, an empty one and one of comments say nothing", () => {
  using folder = new TempFolder("envyaml");
  assert.deepEqual(readEnvYaml(folder.path), []);
  assert.deepEqual(read("# nothing\n").builds, {});
});

test("keys of other programs are named as without effect, misspelt ones of ours are refused", () => {
  assert.deepEqual(read("policy_api_key: k\n").withoutEffect, ["env.yaml: policy_api_key"]);
  assert.throws(() => read("build: {tool: podman}\n"), { code: "usage", hint: /did you mean builds\.tool/ });
  assert.throws(() => read("harbor_environment_server: {enforce_task_timeout: 1}\n"), { code: "usage" });
});

for (
  const text of [
    "builds: {tol: docker}",
    "builds: {concurrency: lots}",
    "buildz: {}",
    "sandbox: {foo: 1}",
    "registries: {ghcr.io: {insecur: true}}",
    "gym: {defaults: {num_repeats: x}}",
  ]
) {
  test(`what env.yaml gets wrong is said to be in env.yaml: ${text}`, () =>
    assert.throws(() => read(text), { code: "usage", message: /^env\.yaml: / }));
}

for (const [name, text] of [["broken", "a: [\n"], ["a list", "- a\n"]] as const) {
  test(`env.yaml that is ${name} is refused by its path`, () =>
    assert.throws(() => read(text), { code: "usage", message: /Cannot read .*env\.yaml: / }));
}
