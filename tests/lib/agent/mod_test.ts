import assert from "node:assert/strict";
import { test } from "node:test";
import { agentNamed, agents } from "../../../lib/agent/mod.ts";
import { systemClock } from "../../../lib/runtime/clock.ts";

test("agentNamed() knows the harnesses of this version", () => {
  assert.deepEqual(agents(systemClock).map(({ name }) => name), ["harbor_oracle", "nop"]);
  assert.equal(agentNamed("harbor_oracle", systemClock).needsSolution, true);
  assert.equal(agentNamed("oracle", systemClock).name, "harbor_oracle");
});

const refused: [string, string, RegExp][] = [
  ["oracel", "usage", /did you mean oracle\?/],
  ["terminus_2_agent", "not-built", /this version has harbor_oracle and nop/],
  ["constructor", "usage", /this version has/],
];
for (const [name, code, hint] of refused) {
  test(`agentNamed() refuses ${name}`, () =>
    assert.throws(() => agentNamed(name, systemClock), (error) => {
      const { code: found, hint: said } = error as { code: string; hint: string };
      assert.equal(found, code);
      assert.match(said, hint);
      return true;
    }));
}
