import { test } from "node:test";
import assert from "node:assert/strict";
import type { BuiltRecord } from "../../../lib/images/built.ts";
import type { ImageRecord } from "../../../lib/images/records.ts";
import { reuseOf } from "../../../lib/images/reuse.ts";

const PIN = `r.io/x/hb__1@sha256:${"a".repeat(64)}`;
const pushed: BuiltRecord = { services: { main: PIN }, pushed: true, platform: "linux/amd64" };
const local: BuiltRecord = { services: { main: "hb__1" }, pushed: false, platform: "linux/amd64" };
const image: ImageRecord = { image: "hb__1", platform: "linux/amd64", config: {}, inputsDigest: "same" };
const arm: BuiltRecord = { ...local, platform: "linux/arm64" };

type Row = [string, BuiltRecord | undefined, ImageRecord | undefined, string | undefined, string, string];

/** What is recorded · image record · builds.repository · outcome · outcome where nothing may be built. */
const rows: Row[] = [
  ["nothing", undefined, undefined, undefined, "build", "refuse"],
  ["local, same inputs", local, image, undefined, "reuse, checked", "reuse, checked"],
  ["local, this run pushes", local, image, "r.io/x", "build", "refuse"],
  ["pushed, this run pushes", pushed, image, "r.io/x", "reuse", "reuse"],
  ["pushed, this run pushes nothing", pushed, image, undefined, "reuse", "reuse"],
  ["pushed to another repository", pushed, image, "other.io/y", "reuse, noted", "reuse, noted"],
  ["other inputs", local, { ...image, inputsDigest: "other" }, undefined, "build", "reuse, checked, noted"],
  ["no record of the image", local, undefined, undefined, "build", "reuse, checked, noted"],
  [
    "an inputs digest of another program",
    local,
    { ...image, inputsDigest: undefined },
    undefined,
    "build",
    "reuse, checked, noted",
  ],
  ["another platform", arm, undefined, undefined, "build", "refuse"],
  ["another service", { ...local, services: { db: "hb__1__db" } }, image, undefined, "build", "refuse"],
];
for (const [name, built, record, repository, outcome, withoutBuilds] of rows) {
  test(`reuse of a record: ${name}`, () => {
    const facts = {
      name: "hb__1",
      service: "main",
      inputsDigest: "same",
      platform: "linux/amd64",
      built,
      image: record,
    };
    const told = (mayBuild: boolean) => {
      const reuse = reuseOf(facts, { repository, mayBuild });
      if (reuse.kind !== "reuse") return reuse.kind;
      return `reuse${reuse.check ? ", checked" : ""}${reuse.note === undefined ? "" : ", noted"}`;
    };
    assert.deepEqual([told(true), told(false)], [outcome, withoutBuilds]);
  });
}

test("a refusal names the image and what does not fit", () => {
  const facts = {
    name: "hb__1",
    service: "main",
    inputsDigest: "same",
    platform: "linux/amd64",
    built: arm,
    image: undefined,
  };
  assert.deepEqual(reuseOf(facts, { repository: undefined, mayBuild: false }), {
    kind: "refuse",
    reason: "hb__1 is not built: what is recorded is linux/arm64, not linux/amd64",
  });
});
