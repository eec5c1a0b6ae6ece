import assert from "node:assert/strict";
import { test } from "node:test";
import type { Credential } from "../../../lib/registry/credentials.ts";
import { registrySettings } from "../../../lib/registry/settings.ts";
import { madeImage, OddRegistry, type Reply, type Seen } from "../../support/odd_registry.ts";
import { collected, testClient } from "../../support/registry_client.ts";

const LOGIN: Credential = { kind: "basic", username: "anna", password: "p:ä" };
const BASIC = `Basic ${btoa("anna:p:\u00c3\u00a4")}`;

const client = (credential: Credential | undefined, more: Parameters<typeof testClient>[0] = {}) =>
  testClient({ credentials: () => Promise.resolve(credential), ...more });

const held = async (): Promise<OddRegistry> => (await OddRegistry.start()).hold("x", madeImage(), "1");

/** Lets in who shows `Bearer <token>`; others are sent to `realm`, whose scope holds a comma. */
const guard = (realm: string, token: string) => ({ path, headers }: Seen): Reply | undefined => {
  if (path.startsWith("/token") || headers.authorization === `Bearer ${token}`) return undefined;
  const asks = `Bearer realm="${realm}",service="reg, istry",scope="repository:x:pull,push",error="invalid_token"`;
  return { status: 401, headers: { "www-authenticate": asks }, body: "{}" };
};

test("a Bearer challenge is answered by a token of its realm, scopes with commas whole, without any login", async () => {
  await using server = await held();
  server.odd = guard(`http://${server.host}/token`, "t1");
  server.put("/token", JSON.stringify({ access_token: "t1", expires_in: 300 }));
  const { image, registry } = client(undefined);
  const found = await image(`${server.host}/x:1`);
  await collected(await registry.blob(found.reference, found.layers[0]!, { offset: 0 }, new AbortController().signal));
  const tokens = server.seen.filter(({ path }) => path.startsWith("/token"));
  assert.equal(tokens.length, 1, "one token for manifest, configuration and layer");
  const query = new URL(tokens[0]!.path, "http://x").searchParams;
  assert.deepEqual(Object.fromEntries(query), { service: "reg, istry", scope: "repository:x:pull,push" });
  assert.equal(tokens[0]!.headers.authorization, undefined);
});

test("a login goes to the realm as Basic, and to the registry never", async () => {
  await using server = await held();
  server.odd = guard(`http://${server.host}/token`, "t1");
  server.put("/token", JSON.stringify({ token: "t1" }));
  await client(LOGIN).image(`${server.host}/x:1`);
  for (const { path, headers } of server.seen) {
    assert.equal(headers.authorization === BASIC, path.startsWith("/token"), path);
  }
});

test("an identity token is exchanged at the realm by POST", async () => {
  await using server = await held();
  server.odd = guard(`http://${server.host}/token`, "t1");
  server.put("/token", JSON.stringify({ access_token: "t1" }));
  await client({ kind: "identity", token: "long-lived" }).image(`${server.host}/x:1`);
  const { method, body, headers } = server.seen.find(({ path }) => path.startsWith("/token"))!;
  assert.equal(method, "POST");
  assert.equal(headers["content-type"], "application/x-www-form-urlencoded");
  assert.deepEqual(Object.fromEntries(new URLSearchParams(body)), {
    grant_type: "refresh_token",
    client_id: "gym-harbor",
    service: "reg, istry",
    scope: "repository:x:pull,push",
    refresh_token: "long-lived",
  });
});

test("many who need the same token ask for it once", async () => {
  await using server = await OddRegistry.start();
  server.odd = guard(`http://${server.host}/token`, "t1");
  server.hold("x", madeImage(), "1").hold("x", madeImage({ layers: ["b"] }), "2");
  server.put("/token", JSON.stringify({ token: "t1" }));
  const { image } = client(undefined);
  await Promise.all(["1", "2"].map((tag) => image(`${server.host}/x:${tag}`)));
  assert.equal(server.seen.filter(({ path }) => path.startsWith("/token")).length, 1);
});

test("a token that is over is fetched anew", async () => {
  await using server = await OddRegistry.start();
  server.hold("x", madeImage(), "1").hold("x", madeImage({ layers: ["b"] }), "2");
  server.put("/token", JSON.stringify({ token: "t1", expires_in: 40 }));
  server.odd = guard(`http://${server.host}/token`, "t1");
  const { image, clock } = client(undefined);
  await image(`${server.host}/x:1`);
  await clock.sleep(31_000);
  await image(`${server.host}/x:2`);
  assert.equal(server.seen.filter(({ path }) => path.startsWith("/token")).length, 2);
});

test("a Basic challenge is answered by the login, once for all requests", async () => {
  await using server = await held();
  server.odd = ({ headers }) =>
    headers.authorization === BASIC ? undefined : { status: 401, headers: { "www-authenticate": 'Basic realm="r"' } };
  await client(LOGIN).image(`${server.host}/x:1`);
  assert.equal(server.seen.length, 3);
});

const REFUSED: [what: string, credential: Credential | undefined, challenge: string, token: Reply, says: RegExp][] = [
  [
    "Basic without a login",
    undefined,
    "Basic realm=x",
    {},
    /HTTP 401 for \/v2\/x\/manifests\/1 \(no login for .* is known\)/,
  ],
  ["Basic for ever", LOGIN, "Basic realm=x", {}, /^credentials were refused: registry returned HTTP 401 for \/v2\/x/],
  [
    "Bearer for ever",
    undefined,
    "Bearer realm=REALM",
    { body: '{"token":"no"}' },
    /^credentials were refused: .*\/v2\/x/,
  ],
  ["a realm that refuses", LOGIN, "Bearer realm=REALM", { status: 401 }, /^credentials were refused: .* for \/token$/],
  [
    "a realm with a web page",
    LOGIN,
    "Bearer realm=REALM",
    { headers: { "content-type": "text/html" }, body: "<p>" },
    /answered with a web page instead of a token$/,
  ],
  ["a realm that is no address", LOGIN, "Bearer realm=nowhere", {}, /names a token realm that is no address$/],
  [
    "a realm without TLS",
    LOGIN,
    'Bearer realm="http://auth.local/token"',
    {},
    /sent to auth\.local without TLS: refused$/,
  ],
  [
    "a token that would end the header",
    LOGIN,
    "Bearer realm=REALM",
    { body: '{"token":"a\\r\\nx: y"}' },
    /instead of a token$/,
  ],
  ["an unknown scheme", LOGIN, "Negotiate", {}, /it wants 'negotiate', which is not known here/],
];

for (const [what, credential, challenge, token, says] of REFUSED) {
  test(`401: ${what} is an error, no loop`, async () => {
    await using server = await held();
    server.odd = ({ path }) =>
      path.startsWith("/token")
        ? token
        : { status: 401, headers: { "www-authenticate": challenge.replace("REALM", `"http://${server.host}/token"`) } };
    await assert.rejects(client(credential).image(`${server.host}/x:1`), (error: Error) => {
      assert.match(error.message, says);
      assert.doesNotMatch(JSON.stringify(error) + error.stack, /p:ä|YW5uYT/);
      return true;
    });
    assert.ok(server.seen.length <= 3, `${server.seen.length} requests`);
  });
}

/** Another name of this machine is another host. */
const elsewhere = (server: OddRegistry): string => server.host.replace("127.0.0.1", "localhost");

test("a redirect to another host is followed without the credentials", async () => {
  await using server = await held();
  await using store = await OddRegistry.start();
  server.odd = ({ headers, path }) =>
    headers.authorization !== BASIC
      ? { status: 401, headers: { "www-authenticate": "Basic realm=x" } }
      : path.includes("/blobs/")
      ? { status: 307, headers: { location: `http://${store.host}${path}?X-Signature=s3cret` } }
      : undefined;
  store.hold("x", madeImage());
  const traced: string[] = [];
  await client(LOGIN, { trace: (line) => traced.push(line) }).image(`${server.host}/x:1`);
  assert.equal(store.seen.length, 1);
  assert.equal(store.seen[0]!.headers.authorization, undefined);
  assert.doesNotMatch(traced.join("\n"), /s3cret|YW5uYT/);
});

test("a redirect on the same host keeps the credentials", async () => {
  await using server = await held();
  server.odd = ({ headers, path }) =>
    headers.authorization !== BASIC
      ? { status: 401, headers: { "www-authenticate": "Basic realm=x" } }
      : path === "/v2/x/manifests/1"
      ? { status: 308, headers: { location: "/v2/x/manifests/2" } }
      : undefined;
  server.hold("x", madeImage(), "2");
  await client(LOGIN).image(`${server.host}/x:1`);
});

test("a redirect away and back again gives nothing away on the way", async () => {
  await using server = await held();
  await using other = await OddRegistry.start();
  server.odd = ({ headers, path }) =>
    path === "/back"
      ? { status: headers.authorization === undefined ? 404 : 500 }
      : headers.authorization === undefined
      ? { status: 401, headers: { "www-authenticate": "Basic realm=x" } }
      : { status: 302, headers: { location: `http://${elsewhere(other)}/away` } };
  other.odd = () => ({ status: 302, headers: { location: `http://${server.host}/back` } });
  await assert.rejects(client(LOGIN).image(`${server.host}/x:1`), /HTTP 404 for \/back/);
  assert.equal(other.seen[0]!.headers.authorization, undefined);
});

test("from TLS to plain HTTP no redirect is followed", async () => {
  const asked: string[] = [];
  const { image } = client(undefined, {
    fetch: (to) => {
      asked.push(String(to));
      return Promise.resolve(new Response("", { status: 302, headers: { location: "http://plain.local/" } }));
    },
  });
  await assert.rejects(image("r.local/x:1"), /redirects to plain\.local without TLS: not followed/);
  assert.equal(asked.length, 1);
});

test("an identity token does not follow a redirect to another host", async () => {
  await using server = await held();
  await using other = await OddRegistry.start();
  const guarded = guard(`http://${server.host}/token`, "t1");
  server.odd = (seen) =>
    seen.path.startsWith("/token") ? { status: 307, headers: { location: `http://${other.host}/` } } : guarded(seen);
  const { image } = client({ kind: "identity", token: "long-lived" });
  await assert.rejects(image(`${server.host}/x:1`), /redirects what we send to .*: not followed/);
  assert.equal(other.seen.length, 0);
});

test("a mirror gets the login of its own host, not the registry's", async () => {
  await using mirror = await held();
  mirror.odd = ({ headers }) =>
    headers.authorization === undefined ? { status: 401, headers: { "www-authenticate": "Basic realm=x" } } : undefined;
  const asked: string[] = [];
  const { image } = testClient({
    settings: registrySettings([["r.local.mirrors", `http://${mirror.host}`]]),
    credentials: (host) => (asked.push(host), Promise.resolve(LOGIN)),
  });
  await image("r.local/x:1");
  assert.deepEqual([...new Set(asked)], [mirror.host]);
});
