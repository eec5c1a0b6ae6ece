import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { test } from "node:test";
import type { Event } from "../../../lib/events.ts";
import { pullImage } from "../../../lib/images/pull.ts";
import { systemClock } from "../../../lib/runtime/clock.ts";
import { openStore } from "../../../lib/store/layout.ts";
import { madeImage, OddRegistry } from "../../support/odd_registry.ts";
import { testClient } from "../../support/registry_client.ts";
import { writeTree } from "../../support/tree.ts";

const signal = new AbortController().signal;
const platform = "linux/amd64";

async function setUp() {
  const server = await OddRegistry.start();
  const tree = writeTree({});
  const store = openStore(`${tree.path}/store`, { clock: systemClock });
  const { registry } = testClient({ random: () => 0 });
  const events: Event[] = [];
  const pull = (reference: string, names?: string[]) =>
    pullImage(
      `${server.host}/${reference}`,
      { registry, store, platform, names },
      signal,
      (event) => events.push(event),
    );
  return {
    server,
    store,
    events,
    pull,
    async [Symbol.asyncDispose]() {
      await server[Symbol.asyncDispose]();
      tree[Symbol.dispose]();
    },
  };
}

test("pullImage() names an image by reference, pin and the names given, and tells of its bytes", async () => {
  await using box = await setUp();
  const made = madeImage({ layers: ["one", "two", "one"] });
  box.server.hold("x", made, "1");
  const image = await box.pull("x:1", ["hb__0123"]);
  const { host } = box.server;
  for (const name of [`${host}/x:1`, `${host}/x@${made.digest}`, "hb__0123"]) {
    assert.equal((await box.store.find(name, platform))?.manifest.digest, image.manifest.digest, name);
  }
  const [begun, ...rest] = box.events.filter((event) => event.kind === "pull");
  assert.deepEqual([begun?.state, begun?.bytes, rest.at(-1)?.state], ["begun", 0, "done"]);
  assert.equal(rest.at(-1)?.bytes, begun?.total);
  assert.equal(
    box.server.asked.filter((path) => path.includes(made.layerDigests[0]!)).length,
    1,
    "equal layers are one",
  );
});

test("pullImage() moves no blob that is here already", async () => {
  await using box = await setUp();
  const base = madeImage({ layers: ["base"] });
  const above = madeImage({ layers: ["base", "above"] });
  box.server.hold("x", base, "1").hold("x", above, "2");
  await box.pull("x:1");
  const before = box.server.seen.length;
  await box.pull("x:2");
  assert.deepEqual(
    box.server.asked.slice(before).filter((path) => above.layerDigests.some((digest) => path.endsWith(digest))),
    [`GET /v2/x/blobs/${above.layerDigests[1]}`],
  );
});

test("pullImage() asks nothing for an image that is named by digest and is here; it gets its new names", async () => {
  await using box = await setUp();
  const made = madeImage();
  box.server.hold("x", made, "1");
  await box.pull("x:1");
  const before = box.server.seen.length;
  await box.pull(`x@${made.digest}`, ["hb__4567"]);
  assert.equal(box.server.seen.length, before);
  assert.ok(await box.store.find("hb__4567", platform));
});

test("pullImage() that fails leaves no name behind, and goes on later with what has come", async () => {
  await using box = await setUp();
  const made = madeImage({ layers: ["a".repeat(5000)], manifest: {} });
  const [layer] = made.layers as [Uint8Array];
  box.server.hold("x", made, "1");
  const half = Math.floor(layer.length / 2);
  box.server.odd = ({ path, headers }) =>
    path.endsWith(made.layerDigests[0]!)
      ? headers.range === undefined ? { body: layer, breakAfter: half } : { status: 403 }
      : undefined;
  await assert.rejects(box.pull("x:1"), {
    code: "image.failed",
    message: /^Cannot pull .*\/x:1: registry returned HTTP 403/,
  });
  assert.equal(await box.store.find(`${box.server.host}/x:1`, platform), undefined);
  assert.equal(existsSync(box.store.blobPath(made.digest)), false);
  box.server.odd = () => undefined;
  await box.pull("x:1");
  const last = box.server.seen.findLast(({ path }) => path.endsWith(made.layerDigests[0]!));
  assert.equal(last?.headers.range, `bytes=${half}-`);
});

test("pullImage() refuses a layer whose bytes are not what its digest says", async () => {
  await using box = await setUp();
  const made = madeImage();
  box.server.hold("x", made, "1").put(`/v2/x/blobs/${made.layerDigests[0]}`, made.layers[0]!.map((byte) => byte ^ 1));
  await assert.rejects(box.pull("x:1"), {
    code: "image.failed",
    message: /digest/,
    hint: /^try again: .* or use a mirror/,
  });
  assert.equal(await box.store.find(`${box.server.host}/x:1`, platform), undefined);
});

test("pullImage() refuses layers that may not be handed on, with a list", async () => {
  await using box = await setUp();
  const made = madeImage();
  const foreign = JSON.parse(made.manifest);
  foreign.layers[0].mediaType = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip";
  box.server.hold("x", { ...made, manifest: JSON.stringify(foreign) }, "1");
  await assert.rejects(box.pull("x:1"), { message: new RegExp(`hand on these layers: ${made.layerDigests[0]}`) });
});
