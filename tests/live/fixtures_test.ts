/** The fixtures are tasks that a person could run: each reference solution scores 1 on every sandbox. */
import { test } from "node:test";
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { REPOSITORY, runCli } from "../support/cli.ts";
import { sandboxes, sandboxTest } from "../support/kit.ts";
import { IMAGE } from "../support/tasks.ts";

/** Base images of the fixtures: where the engine has none of that name, the test image stands in for the time of a test. */
const BASES = ["debian:bookworm-slim", "python:3.12-slim"];

function standIns(engine: "docker" | "podman"): Disposable {
  const local = (name: string): string => (engine === "docker" ? name : `localhost/${name}`);
  const lent = BASES.filter((name) => spawnSync(engine, ["image", "inspect", name]).status !== 0).map(local);
  for (const name of lent) assert.equal(spawnSync(engine, ["tag", local(IMAGE), name]).status, 0, `tag ${name}`);
  return { [Symbol.dispose]: () => void lent.forEach((name) => spawnSync(engine, ["rmi", name])) };
}

for (const sandbox of sandboxes()) {
  for (
    const [dataset, expected] of [
      ["tasks", { "fix-script": "1", hello: "1", "loopback-service": "1", "word-count": "1" }],
      ["more", { capital: "1", median: "1", "no-solution": undefined }],
    ] as const
  ) {
    sandboxTest(sandbox, `validate fixtures/${dataset}`, async () => {
      using _images = sandbox === "host" ? { [Symbol.dispose]: () => {} } : standIns(sandbox);
      const folder = mkdtempSync(join(tmpdir(), "gh-fixtures-"));
      try {
        const output = join(folder, "rollouts.jsonl");
        const args = ["validate", join(REPOSITORY, "fixtures", dataset), "--sandbox", sandbox, "--output", output];
        const { code, stdout, stderr } = await runCli(args);
        const rows = stdout.trim().split("\n").slice(1).map((line) => line.split("\t"));
        const rewards = Object.fromEntries(rows.map(([id, , reward]) => [id, reward]));
        for (const [id, reward] of Object.entries(expected)) {
          if (reward === undefined) assert.match(stdout, new RegExp(`^${id}\tunvalidated`, "m"), stderr);
          else assert.equal(rewards[id], reward, `${id}\n${stdout}\n${stderr}`);
        }
        assert.equal(code, 0, stderr);
        const images = readFileSync(output, "utf8").trim().split("\n").map((line) => JSON.parse(line).image as string);
        assert.equal(images.every((image) => image === "host"), sandbox === "host");
      } finally {
        rmSync(folder, { recursive: true, force: true });
      }
    });
  }
}

sandboxTest("host", "the README shows the table that validate prints", async () => {
  const readme = readFileSync(join(REPOSITORY, "README.md"), "utf8");
  const [, line, table] = /^```tsv\n\$ gym-harbor (.*)\n([\s\S]*?)^```/m.exec(readme) ?? [];
  const folder = mkdtempSync(join(tmpdir(), "gh-readme-"));
  try {
    const args = [...line!.split(" "), "--output", join(folder, "rollouts.jsonl")];
    assert.equal((await runCli(args, { cwd: REPOSITORY })).stdout, table);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

test("fixtures load; those of fixtures/tasks by Harbor's rules too", async () => {
  for (const args of [["fixtures/tasks", "fixtures/more"], ["--strict", "fixtures/tasks"]]) {
    const { code, stdout } = await runCli(["check", ...args], { cwd: REPOSITORY });
    assert.equal(code, 0, stdout);
  }
});
