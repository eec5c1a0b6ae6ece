import assert from "node:assert/strict";
import { test } from "node:test";
import { parseReference } from "../../../lib/images/reference.ts";
import { MEDIA, type UploadImage } from "../../../lib/registry/registry.ts";
import { registrySettings } from "../../../lib/registry/settings.ts";
import { type MadeImage, madeImage, OddRegistry, type Reply, type Seen, sha256 } from "../../support/odd_registry.ts";
import { testClient } from "../../support/registry_client.ts";

const signal = new AbortController().signal;

function uploadOf(made: MadeImage): UploadImage {
  const bytes = new Map<string, string | Uint8Array>([[sha256(made.config), made.config]]);
  made.layers.forEach((layer, at) => bytes.set(made.layerDigests[at]!, layer));
  const blobs = [...bytes].map(([digest, body]) => ({ mediaType: "x", digest, size: body.length }));
  return {
    manifest: { mediaType: MEDIA.ociManifest, digest: made.digest, size: made.manifest.length },
    manifestBytes: new TextEncoder().encode(made.manifest),
    blobs,
    open: ({ digest }) => Promise.resolve(new Blob([bytes.get(digest)! as BlobPart])),
  };
}

/** What a registry does that takes uploads; `refuse` may answer in its place. Sent blobs are kept by digest. */
function receiving(server: OddRegistry, refuse: (seen: Seen) => Reply | undefined = () => undefined) {
  const sent = new Map<string, string>();
  const parts = new Map<string, string>();
  let uploads = 0;
  server.odd = (seen) => {
    const refused = refuse(seen);
    if (refused !== undefined) return refused;
    const [path, query] = seen.path.split("?") as [string, string | undefined];
    if (seen.method === "POST") {
      return { status: 202, headers: { location: `/v2/x/blobs/uploads/${++uploads}?state=a` } };
    }
    if (seen.method === "PATCH") {
      assert.equal(seen.headers["content-range"]?.split("-")[0], `${parts.get(path)?.length ?? 0}`);
      parts.set(path, (parts.get(path) ?? "") + seen.body);
      return { status: 202, headers: { location: seen.path } };
    }
    if (seen.method !== "PUT") return undefined;
    const digest = new URLSearchParams(query).get("digest");
    sent.set(digest ?? path, (parts.get(path) ?? "") + seen.body);
    return { status: 201, headers: digest === null ? { "docker-content-digest": sha256(seen.body) } : {} };
  };
  return sent;
}

test("push() sends blobs the registry lacks, the manifest last, and returns the pin", async () => {
  await using server = await OddRegistry.start();
  const made = madeImage({ layers: ["here already", "new"] });
  server.put(`/v2/x/blobs/${made.layerDigests[0]}`, "");
  const sent = receiving(server);
  const there: string[] = [];
  const { registry } = testClient();
  const pin = await registry.push(
    parseReference(`${server.host}/x:1`),
    uploadOf(made),
    signal,
    ({ digest }) => there.push(digest),
  );
  assert.equal(pin, `${server.host}/x@${made.digest}`);
  assert.deepEqual([...sent.keys()].sort(), [sha256(made.config), made.layerDigests[1], "/v2/x/manifests/1"].sort());
  assert.equal(sent.get(sha256(made.config)), made.config);
  assert.equal(server.asked.at(-1), "PUT /v2/x/manifests/1");
  assert.deepEqual(there.sort(), [sha256(made.config), ...made.layerDigests].sort());
  const put = server.seen.find(({ method, path }) => method === "PUT" && path.includes("uploads"))!;
  assert.match(put.path, /\?state=a&digest=sha256%3A/);
  assert.ok(put.headers["content-length"], "the length is known beforehand");
});

for (const status of [400, 404, 405, 413]) {
  test(`push() sends a blob in parts where a registry answers ${status} to the whole`, async () => {
    await using server = await OddRegistry.start();
    const made = madeImage();
    const sent = receiving(
      server,
      ({ method, body, path }) => method === "PUT" && body !== "" && path.includes("uploads") ? { status } : undefined,
    );
    await testClient().registry.push(parseReference(`${server.host}/x:1`), uploadOf(made), signal);
    assert.equal(sent.get(sha256(made.config)), made.config);
  });
}

test("push() cuts a large blob into parts that follow each other", async () => {
  await using server = await OddRegistry.start();
  const made = madeImage();
  const large = "x".repeat(9 * 2 ** 20);
  const sent = receiving(
    server,
    ({ method, body, path }) =>
      method === "PUT" && body !== "" && path.includes("uploads") ? { status: 413 } : undefined,
  );
  const image = uploadOf(made);
  const blob = { mediaType: "x", digest: sha256(large), size: large.length };
  await testClient().registry.push(parseReference(`${server.host}/x:1`), {
    ...image,
    blobs: [blob],
    open: () => Promise.resolve(new Blob([large])),
  }, signal);
  assert.equal(sha256(sent.get(blob.digest)!), blob.digest);
});

const REFUSED: [what: string, refuse: (seen: Seen) => Reply | undefined, says: RegExp][] = [
  [
    "an upload that is not allowed",
    ({ method }) => (method === "POST" ? { status: 403 } : undefined),
    /HTTP 403 for \/v2\/x\/blobs\/uploads\/$/,
  ],
  [
    "an upload without a place",
    ({ method }) => (method === "POST" ? { status: 202 } : undefined),
    /does not say where an upload goes on$/,
  ],
  [
    "a manifest stored as another",
    ({ path, method }) =>
      path.includes("manifests") && method === "PUT"
        ? { status: 201, headers: { "docker-content-digest": sha256("") } }
        : undefined,
    /stored the manifest as sha256:e3b0c4/,
  ],
];

for (const [what, refuse, says] of REFUSED) {
  test(`push() fails for ${what}`, async () => {
    await using server = await OddRegistry.start();
    receiving(server, refuse);
    const push = testClient().registry.push(parseReference(`${server.host}/x:1`), uploadOf(madeImage()), signal);
    await assert.rejects(push, { code: "image.failed", message: says });
  });
}

test("push() shows its credentials to the registry alone, when uploads go to a storage elsewhere", async () => {
  await using server = await OddRegistry.start();
  await using storage = await OddRegistry.start();
  const made = madeImage();
  storage.odd = () => ({ status: 201 });
  receiving(
    server,
    ({ method, headers }) =>
      headers.authorization === undefined
        ? { status: 401, headers: { "www-authenticate": "Basic realm=x" } }
        : method === "POST"
        ? { status: 202, headers: { location: `http://${storage.host}/bucket?sig=1` } }
        : undefined,
  );
  const { registry } = testClient({
    credentials: () => Promise.resolve({ kind: "basic", username: "u", password: "p" }),
  });
  await registry.push(parseReference(`${server.host}/x:1`), uploadOf(made), signal);
  assert.equal(storage.seen.length, 2);
  assert.ok(storage.seen.every(({ headers }) => headers.authorization === undefined));
});

test("push() goes to the registry itself, never to a mirror, and offline nowhere", async () => {
  await using server = await OddRegistry.start();
  await using mirror = await OddRegistry.start();
  receiving(server);
  const settings = registrySettings([[`${server.host}.mirrors`, `http://${mirror.host}`]]);
  const reference = parseReference(`${server.host}/x:1`);
  await testClient({ settings }).registry.push(reference, uploadOf(madeImage()), signal);
  assert.equal(mirror.seen.length, 0);
  const before = server.seen.length;
  await assert.rejects(
    testClient({ offline: true }).registry.push(reference, uploadOf(madeImage()), signal),
    /^HarborError: Offline/,
  );
  assert.equal(server.seen.length, before);
});
