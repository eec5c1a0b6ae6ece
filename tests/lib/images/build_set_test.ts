import { test } from "node:test";
import assert from "node:assert/strict";
import { chmodSync, symlinkSync } from "node:fs";
import { collectBuilds } from "../../../lib/images/build_set.ts";
import { buildPlanOf } from "../../support/build_plans.ts";
import { TempFolder } from "../../support/tasks.ts";

test("of two tasks with one hash and unequal inputs the first by id wins, and the other hears what differs", () => {
  using folder = new TempFolder("builds");
  const good = buildPlanOf(folder, "a", "h1", { link: { symlink: "a" } });
  const other = buildPlanOf(folder, "b", "h1");
  chmodSync(`${other.context}/a`, 0o755);
  symlinkSync("Dockerfile", `${other.context}/link`);
  const { builds, refused } = collectBuilds(
    [{ taskId: "b", builds: [other] }, { taskId: "a", builds: [good] }],
    "linux/amd64",
  );
  assert.deepEqual(builds.map(({ tasks }) => tasks), [["a"]]);
  assert.equal(
    refused.b,
    "environment/ has the same context hash (hb__h1) as that of a, and is not the same: " +
      "a has mode 644 in a, 755 in b; link leads to a in a, Dockerfile in b",
  );
});
