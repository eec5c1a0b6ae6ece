import { test } from "node:test";
import assert from "node:assert/strict";
import { type ImageRecord, readRecord, recordFor, withRecords } from "../../../lib/images/records.ts";

const DIGEST = `sha256:${"a".repeat(64)}`;
const debian: ImageRecord = {
  image: `library/debian@${DIGEST}`,
  platform: "linux/amd64",
  config: { Env: ["PATH=/bin"], WorkingDir: "/srv", User: "", Entrypoint: null },
  configDigest: DIGEST,
};

test("a record comes back as it was written, empty fields left out", () => {
  const file = withRecords({}, { "debian:12": debian });
  assert.deepEqual(file["debian:12"], {
    image: debian.image,
    os: "linux",
    architecture: "amd64",
    config: { Env: ["PATH=/bin"], WorkingDir: "/srv" },
    config_digest: DIGEST,
  });
  assert.deepEqual(recordFor(file, "debian:12", "linux/amd64"), {
    ...debian,
    config: { Env: ["PATH=/bin"], WorkingDir: "/srv" },
  });
});

const spellings: [string, unknown, Partial<ImageRecord> | undefined][] = [
  ["nested", { image: "a@b", config: { User: "app" } }, { image: "a@b", config: { User: "app" } }],
  ["flat", { image: "a@b", User: "app", Env: ["A=1"] }, { image: "a@b", config: { User: "app", Env: ["A=1"] } }],
  ["platform in one word", { image: "a@b", platform: "linux/arm64/v8" }, { platform: "linux/arm64" }],
  ["platform in two", { image: "a@b", os: "linux", architecture: "aarch64" }, { platform: "linux/arm64" }],
  ["no platform", { image: "a@b" }, { platform: undefined, config: {} }],
  ["without an image", { config: {} }, undefined],
  ["no object", "debian", undefined],
];

for (const [name, entry, expected] of spellings) {
  test(`readRecord() reads an entry as far as it parses: ${name}`, () => {
    const read = readRecord(entry);
    if (expected === undefined) assert.equal(read, undefined);
    else for (const [key, value] of Object.entries(expected)) assert.deepEqual(read?.[key as keyof ImageRecord], value);
  });
}

test("withRecords() keeps what it does not understand, in the file and in the entry", () => {
  const before = { "debian:12": { image: "x", platform: "linux/amd64", from: "upstream" }, other: [1], v: "2" };
  const after = withRecords(before, { "debian:12": debian }) as Record<string, Record<string, unknown>>;
  assert.deepEqual([after.other, after.v, after["debian:12"]!.from], [[1], "2", "upstream"]);
  assert.equal(after["debian:12"]!.image, debian.image);
  assert.equal(after["debian:12"]!.platform, undefined, "one spelling of the platform");
});

test("two platforms in turn each keep their record", () => {
  const arm = { ...debian, platform: "linux/arm64", image: "library/debian@sha256:arm" };
  let file = withRecords({}, { d: debian });
  file = withRecords(file, { d: arm });
  assert.equal(recordFor(file, "d", "linux/arm64")?.image, arm.image);
  assert.equal(recordFor(file, "d", "linux/amd64")?.image, debian.image);
  file = withRecords(file, { d: debian });
  assert.equal(recordFor(file, "d", "linux/arm64")?.image, arm.image);
  assert.equal(recordFor(file, "d", "linux/s390x"), undefined);
});
