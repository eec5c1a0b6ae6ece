import assert from "node:assert/strict";
import { test } from "node:test";
import { parseReference } from "../../../lib/images/reference.ts";
import { MEDIA } from "../../../lib/registry/registry.ts";
import { registrySettings } from "../../../lib/registry/settings.ts";
import {
  entryOf,
  type MadeImage,
  madeImage,
  madeIndex,
  OddRegistry,
  type Reply,
  sha256,
} from "../../support/odd_registry.ts";

import { collected, testClient as client } from "../../support/registry_client.ts";

const signal = new AbortController().signal;

const failure = { name: "HarborError", code: "image.failed" };

test("image() reads a single manifest and its configuration, and pins by its digest", async () => {
  await using server = await OddRegistry.start();
  const made = madeImage();
  server.hold("org/x", made, "1");
  const { image } = client();
  const found = await image(`${server.host}/org/x:1`);
  assert.equal(found.pinned, `${server.host}/org/x@${made.digest}`);
  assert.equal(found.indexDigest, undefined);
  assert.equal(found.platform, "linux/amd64");
  assert.deepEqual(found.layers.map(({ digest }) => digest), made.layerDigests);
  assert.equal(
    server.seen[0]!.headers.accept,
    [MEDIA.ociIndex, MEDIA.dockerList, MEDIA.ociManifest, MEDIA.dockerManifest].join(", "),
  );
});

test("image() pins an index by the index's digest, takes its platform and passes over attestations", async () => {
  await using server = await OddRegistry.start();
  const [amd64, arm64] = [madeImage(), madeImage({ architecture: "arm64" })];
  const index = madeIndex([
    entryOf(madeImage({ os: "x" }), { os: "unknown", architecture: "unknown" }),
    entryOf(madeImage({ os: "y" }), { os: "linux", architecture: "amd64" }, {
      annotations: { "vnd.docker.reference.type": "attestation-manifest" },
    }),
    entryOf(arm64, { os: "linux", architecture: "aarch64" }),
    entryOf(amd64, { os: "linux", architecture: "x86_64" }),
  ]);
  server.hold("x", amd64).hold("x", arm64).holdIndex("x", index, "latest");
  const { image } = client();
  const [ours, theirs] = [await image(`${server.host}/x`), await image(`${server.host}/x`, "linux/arm64")];
  assert.equal(ours.manifest.digest, amd64.digest);
  assert.equal(theirs.manifest.digest, arm64.digest);
  for (const found of [ours, theirs]) {
    assert.equal(found.indexDigest, sha256(index));
    assert.equal(found.pinned, `${server.host}/x@${sha256(index)}`);
  }
});

test("image() leaves a reference that carries a digest as it was written", async () => {
  await using server = await OddRegistry.start();
  const made = madeImage();
  server.hold("x", made);
  const reference = `${server.host}/x:1@${made.digest}`;
  assert.equal((await client().image(`docker://${reference}`)).pinned, reference);
});

test("E18: image() names both platforms when a reference is of another one", async () => {
  await using server = await OddRegistry.start();
  server.hold("x", madeImage({ architecture: "arm64" }), "1");
  const reference = `${server.host}/x:1`;
  await assert.rejects(client().image(reference), {
    ...failure,
    message: `${reference} resolved to linux/arm64, not linux/amd64`,
  });
});

test("E18: image() says which platforms an index has", async () => {
  await using server = await OddRegistry.start();
  server.holdIndex("x", madeIndex([entryOf(madeImage(), { os: "linux", architecture: "arm64" })]), "1");
  await assert.rejects(client().image(`${server.host}/x:1`, "linux/riscv64"), {
    ...failure,
    message: "the image index has no linux/riscv64 manifest",
    hint: /it has linux\/arm64/,
  });
});

test("equal references are asked for once, however they are spelled", async () => {
  await using server = await OddRegistry.start();
  server.hold("x", madeImage(), "latest");
  const { image } = client();
  await Promise.all(
    [`${server.host}/x`, `docker://${server.host}/x:latest`, `${server.host}/x:latest`].map((one) => image(one)),
  );
  assert.equal(server.seen.length, 2);
});

test("offline: no packet leaves", async () => {
  const { image, registry } = client({
    offline: true,
    fetch: () => assert.fail("a request was made"),
    credentials: () => assert.fail("credentials were looked for"),
  });
  const says = { ...failure, message: /^Offline: docker\.io is not asked for debian:12/ };
  await assert.rejects(image("debian:12"), says);
  const descriptor = { mediaType: "x", digest: sha256(""), size: 1 };
  await assert.rejects(registry.blob(parseReference("debian:12"), descriptor, { offset: 0 }, signal), says);
});

const OTHER = sha256("other");
/** What is wrong, how the registry does it, what is said. */
const BAD: [what: string, make: (made: MadeImage) => Partial<MadeImage> | Reply, says: string | RegExp][] = [
  ["a manifest of another digest than the header's", ({ manifest }) => ({
    headers: { "docker-content-digest": OTHER },
    body: manifest,
  }), new RegExp(`^the manifest has digest sha256:[0-9a-f]{64}, not ${OTHER}$`)],
  [
    "a web page",
    () => ({ headers: { "content-type": "text/html" }, body: "<html>Log in</html>" }),
    "the registry answered with a web page instead of a manifest",
  ],
  [
    "a web page that claims to be JSON",
    () => ({ headers: { "content-type": "application/json" }, body: "<!DOCTYPE html>" }),
    "the registry answered with a web page instead of a manifest",
  ],
  ["no JSON", () => ({ body: "{" }), "the registry answered with something that is no manifest (no content type)"],
  ["schema 1", () => ({ body: '{"schemaVersion": 1}' }), /^it is a manifest of schema 1/],
  ["an index that is a manifest as well", ({ manifest }) => ({
    body: JSON.stringify({ ...JSON.parse(manifest), manifests: [] }),
  }), "its manifest claims to be an index as well"],
  ["an artifact", () => ({
    manifest: madeImage({
      manifest: { config: { mediaType: "application/vnd.cncf.helm.config.v1+json", digest: OTHER, size: 2 } },
    }).manifest,
  }), /^it is not a container image: .*helm/],
  [
    "a digest that is none",
    () => ({ manifest: madeImage({ manifest: { layers: [{ mediaType: "x", digest: "../x", size: 1 }] } }).manifest }),
    /^its manifest cannot be read: layers\.0\.digest/,
  ],
  [
    "an endless manifest",
    () => ({ body: " ".repeat(4 * 1024 * 1024 + 1) }),
    "the manifest is larger than 4194304 bytes",
  ],
  ["a configuration of too many bytes", () => ({
    manifest:
      madeImage({ manifest: { config: { mediaType: MEDIA.ociConfig, digest: OTHER, size: 9_000_000 } } }).manifest,
  }), /its configuration has 9000000 bytes, at most 8388608/],
  [
    "another configuration than the manifest names",
    ({ config }) => ({ config: config.replace("PATH=/bin", "PATH=/bit") }),
    /^its configuration has digest sha256:/,
  ],
  [
    "a configuration that is cut off",
    ({ config }) => ({ config: config.slice(0, 20) }),
    /ended after 20 of \d+ bytes$/,
  ],
  [
    "fewer layers than diff ids",
    () => madeImage({ config: { rootfs: { type: "layers", diff_ids: [] } } }),
    "its configuration speaks of 0 layers, its manifest of 1",
  ],
  [
    "401 without a challenge",
    () => ({ status: 401 }),
    /^registry returned HTTP 401 for \/v2\/x\/manifests\/1 \(it does not say/,
  ],
  [
    "403",
    () => ({ status: 403, body: '{"errors":[{"code":"DENIED","message":"no\\u001b[31m"}]}' }),
    "registry returned HTTP 403 for /v2/x/manifests/1 (DENIED: no\\x1b[31m)",
  ],
  ["404", () => ({ status: 404 }), "registry returned HTTP 404 for /v2/x/manifests/1"],
  [
    "500 for ever",
    () => ({ status: 500, body: "<html>", headers: { "content-type": "text/html" } }),
    "registry returned HTTP 500 for /v2/x/manifests/1 (a web page, not a registry's answer)",
  ],
  [
    "a redirect to itself",
    () => ({ status: 307, headers: { location: "/v2/x/manifests/1" } }),
    /^more than 5 redirects/,
  ],
];

for (const [what, make, says] of BAD) {
  test(`image() refuses ${what}`, async () => {
    await using server = await OddRegistry.start();
    const made = madeImage();
    const odd = make(made);
    if ("body" in odd || "status" in odd) server.odd = () => odd as Reply;
    else {
      server.hold("x", made, "1");
      const manifest = (odd as Partial<MadeImage>).manifest ?? made.manifest;
      server.put("/v2/x/manifests/1", manifest, MEDIA.ociManifest);
      const { digest } = JSON.parse(manifest).config;
      server.put(`/v2/x/blobs/${digest}`, (odd as Partial<MadeImage>).config ?? made.config);
    }
    await assert.rejects(client().image(`${server.host}/x:1`), { ...failure, message: says });
  });
}

test("image() refuses a manifest whose digest is not the one that was asked for", async () => {
  await using server = await OddRegistry.start();
  const made = madeImage();
  server.hold("x", made).put(`/v2/x/manifests/${OTHER}`, made.manifest, MEDIA.ociManifest);
  await assert.rejects(client().image(`${server.host}/x@${OTHER}`), {
    ...failure,
    message: `the manifest has digest ${made.digest}, not ${OTHER}`,
  });
});

test("a fault that passes is tried again, with pauses that double", async () => {
  await using server = await OddRegistry.start();
  server.hold("x", madeImage(), "1");
  const faults = [502, 503, 408];
  server.odd = () => (faults.length > 0 ? { status: faults.shift()! } : undefined);
  const { image, clock } = client();
  await image(`${server.host}/x:1`);
  assert.deepEqual(clock.slept, [1000, 2000, 4000]);
});

test("a host that never answers is given up by the whole command after four tries", async () => {
  let tries = 0;
  const { image } = client({
    fetch:
      () => (tries++,
        Promise.reject(new TypeError("error sending request for url (https://u:p@r.local/?sig=s3cret): refused"))),
  });
  const says = { ...failure, message: /^cannot reach r\.local: (?!.*s3cret)(?!.*u:p)/ };
  await assert.rejects(image("r.local/x:1"), says);
  await assert.rejects(image("r.local/y:1"), says);
  assert.equal(tries, 4);
});

test("TLS that cannot work is not tried again, and the way to plain HTTP is named", async () => {
  let tries = 0;
  const { image } = client({
    fetch: () => (tries++, Promise.reject(new TypeError("received corrupt message of type InvalidContentType"))),
  });
  await assert.rejects(image("r.local:5000/x:1"), { ...failure, hint: /registries\.r\.local:5000\.insecure=true/ });
  assert.equal(tries, 1);
});

const URLS: [reference: string, settings: [string, unknown][], url: string][] = [
  ["debian:12", [], "https://registry-1.docker.io/v2/library/debian/manifests/12"],
  ["ghcr.io/a/b:1", [], "https://ghcr.io/v2/a/b/manifests/1"],
  ["r.local:5000/a:1", [["r.local:5000.insecure", true]], "http://r.local:5000/v2/a/manifests/1"],
  ["localhost:5000/a:1", [], "http://localhost:5000/v2/a/manifests/1"],
  ["debian:12", [["docker.io.mirrors", ["m.local/hub"]]], "https://m.local/v2/hub/library/debian/manifests/12"],
];

for (const [reference, settings, url] of URLS) {
  test(`${reference} is asked for at ${url}`, async () => {
    const asked: string[] = [];
    const { image } = client({
      settings: registrySettings(settings),
      fetch: (to) => (asked.push(String(to)), Promise.resolve(new Response("", { status: 404 }))),
    });
    await assert.rejects(image(reference));
    assert.equal(asked[0], url);
  });
}

test("a blob that breaks off is taken up again where it ended", async () => {
  await using server = await OddRegistry.start();
  server.put("/v2/x/blobs/b", "0123456789");
  let breaks = 0;
  server.odd = (
    { headers },
  ) => (breaks++ === 0
    ? { body: "0123456789", breakAfter: 4 }
    : headers.range === "bytes=4-"
    ? undefined
    : { status: 500 });
  const { registry } = client();
  const stream = await registry.blob(parseReference(`${server.host}/x`), { mediaType: "x", digest: "b", size: 10 }, {
    offset: 0,
  }, signal);
  assert.equal(await collected(stream), "0123456789");
  assert.equal(breaks, 2);
});

const OFFSETS: [what: string, reply: Reply, gives: string | RegExp][] = [
  ["a server that honours Range", { status: 206, headers: { "content-range": "bytes 6-9/10" }, body: "6789" }, "6789"],
  ["a server that ignores Range", { body: "0123456789" }, "6789"],
  [
    "a server that begins earlier",
    { status: 206, headers: { "content-range": "bytes 4-9/10" }, body: "456789" },
    "6789",
  ],
  [
    "a server that begins later",
    { status: 206, headers: { "content-range": "bytes 8-9/10" }, body: "89" },
    /from 8, not from 6/,
  ],
  ["a server that has no such byte", { status: 416 }, /^blob b ended after 6 of 10 bytes$/],
  ["a server that always ends early", { body: "0123456" }, /^blob b ended after 7 of 10 bytes$/],
  ["a server that sends too much", { body: "0123456789ab" }, /^blob b is longer than the 10 bytes/],
];

for (const [what, reply, gives] of OFFSETS) {
  test(`blob() from an offset: ${what}`, async () => {
    await using server = await OddRegistry.start();
    server.odd = () => reply;
    const { registry } = client();
    const stream = await registry.blob(parseReference(`${server.host}/x`), { mediaType: "x", digest: "b", size: 10 }, {
      offset: 6,
    }, signal);
    if (typeof gives === "string") assert.equal(await collected(stream), gives);
    else await assert.rejects(collected(stream), { ...failure, message: gives });
  });
}

test("mirrors are asked in their order on the same path; the pin stays under the original name", async () => {
  await using first = await OddRegistry.start();
  await using second = await OddRegistry.start();
  const made = madeImage();
  second.hold("library/debian", made, "12");
  const { image, registry, events } = client({
    settings: registrySettings([["docker.io.mirrors", [`http://${first.host}`, `http://${second.host}`]]]),
  });
  const found = await image("debian:12");
  assert.equal(found.pinned, `library/debian@${made.digest}`);
  await collected(await registry.blob(found.reference, found.layers[0]!, { offset: 0 }, signal));
  assert.deepEqual(first.asked, second.asked);
  assert.equal(events.filter(({ kind }) => kind === "warning").length, 1);
});

test("a mirror that serves other bytes is passed over", async () => {
  await using mirror = await OddRegistry.start();
  await using origin = await OddRegistry.start();
  const made = madeImage();
  origin.hold("x", made);
  mirror.hold("x", made).put(`/v2/x/manifests/${made.digest}`, madeImage({ layers: ["evil"] }).manifest);
  const { image } = client({ settings: registrySettings([[`${origin.host}.mirrors`, `http://${mirror.host}`]]) });
  assert.equal((await image(`${origin.host}/x@${made.digest}`)).manifest.digest, made.digest);
});

test("when mirrors and registry fail, all of them are named", async () => {
  await using mirror = await OddRegistry.start();
  await using origin = await OddRegistry.start();
  const { image } = client({ settings: registrySettings([[`${origin.host}.mirrors`, `http://${mirror.host}`]]) });
  await assert.rejects(image(`${origin.host}/x:1`), {
    message: new RegExp(`^registry returned HTTP 404 for .*mirror ${mirror.host}: registry returned HTTP 404`),
  });
});

test("an abort ends a download with the signal's reason", async () => {
  await using server = await OddRegistry.start();
  server.odd = () => new Promise(() => {});
  const abort = new AbortController();
  const { registry } = client();
  const pending = registry.image(parseReference(`${server.host}/x:1`), "linux/amd64", abort.signal);
  abort.abort(new Error("enough"));
  await assert.rejects(pending, { message: "enough" });
});
