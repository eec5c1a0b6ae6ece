import assert from "node:assert/strict";
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { parse, run } from "../../../cmd/dataset/init.ts";
import { openDataset } from "../../../lib/dataset/load.ts";
import { parseDatasetName } from "../../../lib/dataset/scaffold.ts";
import { HarborError } from "../../../lib/errors.ts";
import { resolveTarget } from "../../../lib/target/resolve.ts";
import { testContext } from "../../support/context.ts";
import { TempFolder } from "../../support/tasks.ts";

async function init(cwd: string, ...argv: string[]) {
  const { ctx, out, notes } = testContext({ cwd });
  return { exit: await run(parse(argv), ctx), out, notes };
}

for (const strict of [false, true]) {
  test(`dataset init writes what loads without a warning${strict ? ", for Harbor too" : ""}`, async () => {
    using temp = new TempFolder();
    assert.equal((await init(temp.path, "acme/first")).exit, 0);
    const dataset = openDataset(resolveTarget("first", temp.path), { strict });
    assert.deepEqual([dataset.errors, dataset.warnings], [[], []]);
    const [loaded, ...more] = [...dataset.tasks()];
    assert.equal(more.length, 0);
    assert.deepEqual([loaded!.errors, loaded!.warnings, loaded!.hashes.problems], [[], [], []]);
    assert.equal(loaded!.id, "hello");
    assert.equal(loaded!.task!.environment.docker_image, "python:3.12-slim");
    assert.equal(loaded!.task!.environment.memory_mb, 2048);
    assert.equal(loaded!.task!.verifier.timeout_sec, 120);
    assert.equal(loaded!.task!.solution?.kind, "solve.sh");
    assert.match(readFileSync(temp.join("first/dataset.toml"), "utf8"), /^name = "acme\/first"$/m);
    assert.match(readFileSync(temp.join("first/hello/task.toml"), "utf8"), /^name = "acme\/hello"$/m);
    for (const script of ["tests/test.sh", "solution/solve.sh"]) {
      assert.equal(statSync(temp.join("first/hello", script)).mode & 0o777, 0o755);
    }
    assert.ok(statSync(temp.join("first/hello/environment")).isDirectory());
    assert.deepEqual(readdirSync(temp.path), ["first"]);
  });
}

test("dataset init takes an image, and names the next step", async () => {
  using temp = new TempFolder();
  const { out, notes } = await init(temp.path, "plain", "--image", "ghcr.io/org/img:1@sha256:00");
  assert.match(
    readFileSync(temp.join("plain/hello/task.toml"), "utf8"),
    /docker_image = "ghcr\.io\/org\/img:1@sha256:00"/,
  );
  assert.match(readFileSync(temp.join("plain/dataset.toml"), "utf8"), /name = "local\/plain"/);
  assert.deepEqual(out, ["plain"]);
  assert.ok(notes.some((line) => line.endsWith("validate plain")), notes.join("\n"));
  const { out: json } = await init(temp.path, "other", "--json");
  assert.equal(JSON.parse(json[0]!).name, "local/other");
});

const REFUSED: [string, string[], RegExp, string][] = [
  ["an existing folder", ["taken"], /\/taken already exists$/, "usage"],
  ["an existing file", ["file"], /\/file already exists$/, "usage"],
  ["a name that climbs", ["../x"], /'\.\.\/x' is no dataset name/, "usage"],
  ["two dots", ["a..b"], /is no dataset name/, "usage"],
  ["three parts", ["a/b/c"], /is no dataset name/, "usage"],
  ["an empty part", ["a/"], /is no dataset name/, "usage"],
  ["a name of 300 characters", ["a".repeat(300)], /the name is too long/, "usage"],
  ["an image that is none", ["x", "--image", 'a"b'], /'a"b' is no image name/, "usage"],
  ["an empty image", ["x", "--image", ""], /'' is no image name/, "usage"],
  ["--parameterized", ["x", "--parameterized"], /not in this version/, "not-built"],
];
for (const [what, argv, message, code] of REFUSED) {
  test(`dataset init refuses ${what} and writes nothing`, async () => {
    using temp = new TempFolder();
    mkdirSync(temp.join("taken"));
    writeFileSync(temp.join("file"), "");
    await assert.rejects(init(temp.path, ...argv), (error: HarborError) => {
      assert.equal(error.code, code);
      assert.match(error.message, message);
      return true;
    });
    assert.deepEqual(readdirSync(temp.path).sort(), ["file", "taken"]);
  });
}

test("parseDatasetName() knows organisations", () => {
  assert.deepEqual(parseDatasetName("org-1/na.me_2"), { org: "org-1", name: "na.me_2" });
  assert.deepEqual(parseDatasetName("bare"), { org: "local", name: "bare" });
});
