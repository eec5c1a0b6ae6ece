import { test } from "node:test";
import assert from "node:assert/strict";
import { dirname, join } from "node:path";
import { readdirSync, statSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parse, run } from "../../cmd/check.ts";
import { taskSchema } from "../../cmd/task.ts";
import { HarborError } from "../../lib/errors.ts";
import { testContext } from "../support/context.ts";
import { type Files, writeTree } from "../support/tree.ts";

const fixtures = join(dirname(fileURLToPath(import.meta.url)), "../../fixtures");

async function check(
  argv: string[],
  cwd = fixtures,
): Promise<{ exit: number; out: string[]; notes: string[]; lines(): Record<string, unknown>[] }> {
  const { ctx, out, notes } = testContext({ cwd });
  const exit = await run(parse(argv), ctx);
  return { exit, out, notes, lines: () => out.map((line) => JSON.parse(line)) };
}

test("check --json gives one object a task, in the shape a program relies on", async () => {
  const { exit, lines } = await check(["tasks", "--json"]);
  assert.equal(exit, 0);
  const [first] = lines();
  assert.deepEqual(Object.keys(first!), [
    "path",
    "id",
    "ok",
    "errors",
    "warnings",
    "mode",
    "steps",
    "task_digest",
    "package_hash",
    "context_hash",
  ]);
  assert.equal(first!.path, `tasks/${first!.id}`);
  assert.equal(first!.ok, true);
});

test("check puts a dataset's own fault on a line of its own with id null, and exits 1", async () => {
  const { exit, lines } = await check(["broken/override-unknown-task", "--json"]);
  assert.equal(exit, 1);
  assert.deepEqual(lines().map(({ id, ok, path }) => [path, id, ok]), [
    ["broken/override-unknown-task", null, false],
    ["broken/override-unknown-task/hello", "hello", true],
  ]);
});

test("check warns of a Compose file that no group can run, save by Harbor's rules", async () => {
  const { exit, lines } = await check(["broken-compose/secrets", "--json"]);
  const [line] = lines();
  assert.deepEqual([exit, line!.ok, line!.mode], [0, true, "compose"]);
  assert.deepEqual(line!.warnings, [{
    code: "compose.refused",
    message:
      "broken-compose/secrets: Compose file was refused: secrets is not supported; service 'db': secrets is not supported",
    hint: "mend what is named in environment/docker-compose.yaml",
    file: "environment/docker-compose.yaml",
  }]);
  for (const argv of [["compose", "--json"], ["broken-compose/secrets", "--strict", "--json"]]) {
    for (const one of (await check(argv)).lines()) assert.deepEqual(one.warnings, [], String(one.path));
  }
});

test("check gives digests of a task that does not load", async () => {
  const { exit, lines } = await check(["broken/toml-negative-timeout", "--json"]);
  const [line] = lines();
  assert.equal(exit, 1);
  assert.equal(line!.ok, false);
  assert.match(String(line!.task_digest), /^[0-9a-f]{64}$/);
  assert.deepEqual(line!.errors, [{
    code: "toml.range",
    key: "agent.timeout_sec",
    message: "broken/toml-negative-timeout/task.toml: agent.timeout_sec is -5, must be above 0",
    hint: "leave timeout_sec out for the default",
    file: "task.toml",
    line: 4,
  }]);
});

test("check's text is one line a task; hints, warnings and counts go to stderr", async () => {
  const { exit, out, notes } = await check(["broken/toml-unknown-key", "broken/no-tests"]);
  assert.equal(exit, 1);
  assert.deepEqual(out, [
    "ok     broken/toml-unknown-key  prebuilt, 2 warnings",
    "error  broken/no-tests has no tests/ folder",
  ]);
  assert.ok(notes.includes("hint: put the verifier into tests/test.sh"));
  assert.equal(notes.at(-1), "1 task loads, 1 not");
  assert.deepEqual((await check(["broken/no-tests", "-q"])).notes, []);
});

test("check --strict gives Harbor's verdict", async () => {
  assert.equal((await check(["broken/windows"])).exit, 1);
  assert.equal((await check(["broken/package-without-name"])).exit, 0);
  assert.equal((await check(["broken/package-without-name", "--strict"])).exit, 1);
});

test("check --resolved adds what differs from the defaults", async () => {
  const { lines } = await check(["broken/toml-zero-cpus", "--json", "--resolved", "--strict"]);
  assert.deepEqual(lines()[0]!.resolved, { environment: { docker_image: "busybox:1.36", cpus: 0 } });
  assert.equal((await check(["broken/toml-broken", "--json", "--resolved"])).lines()[0]!.resolved, null);
});

test("check --schema-only looks at the file alone", async () => {
  using tree = writeTree({ "a.toml": "[[steps]]\nname = 'x'\n", "b.toml": "[agent]\nuser = 1.5\n" });
  const { exit, lines } = await check(["--schema-only", "--json", "a.toml", "b.toml"], tree.path);
  assert.equal(exit, 1);
  assert.deepEqual(lines().map(({ path, id, ok, steps }) => [path, id, ok, steps]), [["a.toml", null, true, 1], [
    "b.toml",
    null,
    false,
    0,
  ]]);
});

for (const argv of [["nowhere"], ["tasks", "nowhere"], ["--schema-only", "nowhere.toml"], ["harbor:x"]]) {
  test(`check ${argv.join(" ")} prints nothing and is the command line's fault`, async () => {
    const { ctx, out } = testContext({ cwd: fixtures });
    await assert.rejects(
      run(parse(argv), ctx),
      (error) => error instanceof HarborError && ["target.missing", "not-built"].includes(error.code),
    );
    assert.deepEqual(out, []);
  });
}

test("check writes nothing", async () => {
  const files: Files = {
    "a/task.toml": "",
    "a/instruction.md": "x",
    "a/environment/Dockerfile": "FROM x",
    "a/tests/test.sh": "x",
  };
  using tree = writeTree(files);
  const before = [readdirSync(tree.path), statSync(tree.path).mtimeMs, statSync(tree.at("a")).mtimeMs];
  assert.equal((await check(["."], tree.path)).exit, 0);
  assert.deepEqual([readdirSync(tree.path), statSync(tree.path).mtimeMs, statSync(tree.at("a")).mtimeMs], before);
});

test("check stops between tasks when it is interrupted", async () => {
  const { ctx, interrupt, out } = testContext({ cwd: fixtures });
  interrupt();
  await assert.rejects(run(parse(["tasks"]), ctx), (error) => error instanceof HarborError && error.code === "aborted");
  assert.deepEqual(out, []);
});

test("task schema describes every key, with defaults", () => {
  const schema = taskSchema() as {
    properties: Record<string, { properties: Record<string, Record<string, unknown>> }>;
  };
  const { environment, verifier } = schema.properties;
  assert.deepEqual(environment!.properties.build_timeout_sec, {
    description: "Bound of an image build, in seconds.",
    type: "number",
    default: 600,
  });
  assert.equal(verifier!.properties.timeout_sec!.default, 600);
  const undescribed = Object.entries(schema.properties).filter(([, one]) => !("description" in one));
  assert.deepEqual(undescribed, []);
});
