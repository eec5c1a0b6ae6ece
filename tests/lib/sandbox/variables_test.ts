import { test } from "node:test";
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { LONGEST_VARIABLE, refuseVariables } from "../../../lib/sandbox/variables.ts";

test("refuseVariables() takes what Linux takes, to the byte", () => {
  for (const [letter, width] of [["x", 1], ["é", 2]] as const) {
    const most = letter.repeat((LONGEST_VARIABLE - 5) / width);
    for (const [value, fits] of [[most, true], [most + letter, false]] as const) {
      assert.equal(spawnSync("/bin/true", { env: { LONG: value } }).status === 0, fits, `${value.length}`);
      if (fits) refuseVariables({ LONG: value });
      else assert.throws(() => refuseVariables({ LONG: value }), { code: "task.unsupported" });
    }
  }
});

test("refuseVariables() names the variable, its table, what was found and what to do", () => {
  assert.throws(() => refuseVariables({ A: "1", BIG: "x".repeat(131_072) }, "verifier.env"), {
    message: /"BIG" of verifier\.env .*131076 bytes.*131071/,
    hint: /into a file/,
  });
  for (const env of [{ "": "x" }, { "a=b": "x" }, { A: "x\0y" }, { "a\0b": "x" }] as Record<string, string>[]) {
    assert.throws(() => refuseVariables(env), { code: "task.unsupported", message: /cannot be set/ });
  }
});
