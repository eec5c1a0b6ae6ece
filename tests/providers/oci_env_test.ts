import { test } from "node:test";
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { passEnvironment, splitEnvironment } from "../../providers/_oci_env.ts";

test("splitEnvironment() puts lines into a file, and what no line holds into the client's own environment", () => {
  const long = "x".repeat(70_000);
  assert.deepEqual(
    splitEnvironment({
      A: "1",
      PATH: "/bin",
      EMPTY: "",
      SPACES: "  a # b ",
      TWO: "a\nb",
      CR: "a\r",
      LONG: long,
      "a b": "c",
    }),
    {
      lines: ["A=1", "PATH=/bin", "EMPTY=", "SPACES=  a # b "],
      byClient: { TWO: "a\nb", CR: "a\r", LONG: long, "a b": "c" },
    },
  );
  for (const name of ["PATH", "DOCKER_HOST", "LD_PRELOAD", "HTTP_PROXY", "CONTAINER_HOST"]) {
    assert.throws(() => splitEnvironment({ [name]: "a\nb" }), { code: "task.unsupported", message: new RegExp(name) });
  }
});

test("G1: passEnvironment() writes a file for its owner alone, gone when the container has started", () => {
  const folder = mkdtempSync(join(tmpdir(), "gym-harbor-env-"));
  try {
    let file = "";
    {
      using passed = passEnvironment({ TOKEN: "secret", TWO: "a\nb" }, folder);
      assert.deepEqual([passed.flags[0], passed.flags.slice(2), passed.client], ["--env-file", ["--env", "TWO"], {
        TWO: "a\nb",
      }]);
      file = passed.flags[1]!;
      assert.equal(readFileSync(file, "utf8"), "TOKEN=secret\n");
      assert.equal(statSync(file).mode & 0o777, 0o600);
    }
    assert.equal(existsSync(file), false);
    using nothing = passEnvironment({}, folder);
    assert.deepEqual(nothing.flags, []);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
