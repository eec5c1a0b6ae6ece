import { test } from "node:test";
import assert from "node:assert/strict";
import { HarborError } from "../../../lib/errors.ts";
import { type ConfigurationSources, readConfigurations } from "../../../lib/images/configurations.ts";
import type { Reference } from "../../../lib/images/reference.ts";
import type { Registry, RemoteImage } from "../../../lib/registry/registry.ts";
import type { LocalImage } from "../../../lib/sandbox/provider.ts";

const A = `sha256:${"a".repeat(64)}`;
const B = `sha256:${"b".repeat(64)}`;
const signal = new AbortController().signal;

/** Counts what it is asked. */
function registry(answers: Record<string, { digest?: string; fails?: string }>) {
  const asked: string[] = [];
  return {
    asked,
    registry: {
      image(reference: Reference) {
        asked.push(reference.written);
        const answer = answers[reference.written];
        if (answer?.digest === undefined) {
          return Promise.reject(
            new HarborError("image.failed", answer?.fails ?? "registry returned HTTP 404 for /v2/"),
          );
        }
        const file = { os: "linux", architecture: "amd64", config: { User: "r" }, rootfs: { diff_ids: [] } };
        return Promise.resolve(
          {
            pinned: `${reference.repository}@${answer.digest}`,
            platform: "linux/amd64",
            config: { digest: B },
            configBytes: new TextEncoder().encode(JSON.stringify(file)),
          } as unknown as RemoteImage,
        );
      },
    } as unknown as Registry,
  };
}

const local = (images: Record<string, Partial<LocalImage>>) => (reference: string): Promise<LocalImage | undefined> =>
  Promise.resolve(
    images[reference] &&
      { configDigest: A, repoDigests: [], config: {}, platform: "linux/amd64", ...images[reference] },
  );

const read = async (reference: string, sources: Partial<ConfigurationSources>) => {
  const all = { platform: "linux/amd64", records: {}, ...sources };
  const found = await readConfigurations([{ reference, what: "base image" }], all, signal);
  return { ...found, record: found.known.get(reference), failure: found.failed.get(reference) };
};

test("a pinned record is used without asking anybody, so a moved tag is not noticed", async () => {
  const { registry: remote, asked } = registry({ "debian:12": { digest: B } });
  const records = { "debian:12": { image: `library/debian@${A}`, os: "linux", architecture: "amd64" } };
  const { record, fresh } = await read("debian:12", {
    records,
    registry: remote,
    local: () => Promise.reject(new Error("asked")),
  });
  assert.deepEqual([record?.image, asked, fresh], [`library/debian@${A}`, [], {}]);
});

const pins: [string, string, string[], string][] = [
  ["its registry's digest", "debian:12", [`docker.io/library/debian@${B}`], `library/debian@${B}`],
  ["only under the name that is asked for", "debian:12", [`127.0.0.1:5000/library/debian@${B}`], "debian:12"],
  ["as written when it was only ever local", "gym-base:host", [], "gym-base:host"],
  ["as written when that is by digest", `debian@${A}`, [`debian@${B}`], `debian@${A}`],
];
for (const [how, reference, repoDigests, image] of pins) {
  test(`what this machine has is recorded without the registry: ${how}`, async () => {
    const { record, fresh } = await read(reference, { local: local({ [reference]: { repoDigests } }) });
    assert.deepEqual([record?.image, record?.configDigest], [image, A]);
    assert.deepEqual(Object.keys(fresh), [reference]);
  });
}

test("a local-only record is read again when the image changed, and is news then alone", async () => {
  const entry = { image: "gym-base:host", os: "linux", architecture: "amd64", config_digest: A };
  const sources = { records: { "gym-base:host": entry }, local: local({ "gym-base:host": {} }) };
  assert.deepEqual((await read("gym-base:host", sources)).fresh, {});
  const changed = await read("gym-base:host", {
    ...sources,
    local: local({ "gym-base:host": { configDigest: B, config: { User: "new" } } }),
  });
  assert.deepEqual([changed.record?.configDigest, changed.record?.config.User], [B, "new"]);
});

test("an image of another platform on this machine is not taken", async () => {
  const { registry: remote } = registry({ "debian:12": { digest: B } });
  const { record } = await read("debian:12", {
    registry: remote,
    local: local({ "debian:12": { platform: "linux/arm64" } }),
  });
  assert.equal(record?.image, `library/debian@${B}`);
});

test("what the registry does not give, the engine may: the image is recorded from there", async () => {
  const { registry: remote } = registry({});
  const { record } = await read("debian:12", {
    registry: remote,
    fetch: local({ "debian:12": { repoDigests: [`docker.io/library/debian@${B}`] } }),
  });
  assert.equal(record?.image, `library/debian@${B}`);
});

test("an image that nobody has fails by the name of its boundary, others are read all the same", async () => {
  const { registry: remote, asked } = registry({
    "good:1": { digest: B },
    "bad:1": { fails: "registry returned HTTP 429 for /v2/x" },
  });
  const found = await readConfigurations(
    [
      { reference: "bad:1", what: "base image" },
      { reference: "good:1", what: "base image" },
      { reference: "bad:1", what: "base image" },
      { reference: "side:1", what: "Compose image" },
    ],
    { platform: "linux/amd64", records: {}, registry: remote },
    signal,
  );
  assert.equal(
    found.failed.get("bad:1")?.message,
    "Could not record the configuration of base image bad:1: registry returned HTTP 429 for /v2/x",
  );
  assert.match(found.failed.get("side:1")!.message, /^Could not record the configuration of Compose image side:1: /);
  assert.deepEqual(Object.keys(found.fresh), ["good:1"]);
  assert.deepEqual(asked.sort(), ["bad:1", "good:1", "side:1"], "each is asked once");
});

test("without a registry a recorded image needs nobody, an unknown one is missing by name", async () => {
  const records = { "gym-base:host": { image: "gym-base:host", os: "linux", architecture: "amd64", config_digest: A } };
  assert.equal((await read("gym-base:host", { records, local: local({}) })).record?.image, "gym-base:host");
  assert.match(
    (await read("other:1", { records, local: local({}) })).failure!.message,
    /neither recorded nor on this machine/,
  );
});
