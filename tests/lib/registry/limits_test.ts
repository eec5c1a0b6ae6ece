import assert from "node:assert/strict";
import { test } from "node:test";
import { PULL_LIMIT_ADVICE } from "../../../lib/registry/failure.ts";
import { registrySettings } from "../../../lib/registry/settings.ts";
import { madeImage, OddRegistry, type Reply } from "../../support/odd_registry.ts";
import { testClient as client } from "../../support/registry_client.ts";

const LIMITED: Reply = {
  status: 429,
  body: '{"errors":[{"code":"TOOMANYREQUESTS","message":"You have reached your pull rate limit"}]}',
};
const limitedFor = (after: string): Reply => ({ ...LIMITED, headers: { "retry-after": after } });

const held = async (): Promise<OddRegistry> => (await OddRegistry.start()).hold("x", madeImage(), "1");

test("E17: Retry-After is honoured, in seconds and as a date, and the image comes", async () => {
  for (const after of ["7", "Thu, 01 Jan 2026 00:00:07 GMT"]) {
    await using server = await held();
    let limits = 1;
    server.odd = () => (limits-- > 0 ? limitedFor(after) : undefined);
    const { image, clock } = client();
    await image(`${server.host}/x:1`);
    assert.deepEqual(clock.slept, [7000]);
  }
});

const GIVEN_UP: [what: string, reply: Reply, requests: number, slept: number[]][] = [
  ["no Retry-After", LIMITED, 1, []],
  ["one of more than a minute", limitedFor("61"), 1, []],
  ["one that is no time", limitedFor("later"), 1, []],
  ["one that never helps", limitedFor("5"), 3, [5000, 5000]],
];

for (const [what, reply, requests, slept] of GIVEN_UP) {
  test(`E17: a 429 with ${what} ends the asking of that registry, not of others`, async () => {
    await using server = await OddRegistry.start();
    await using other = await held();
    server.odd = () => reply;
    const { image, clock } = client();
    for (const name of ["x", "y", "z"]) {
      await assert.rejects(image(`${server.host}/${name}:1`), {
        code: "image.failed",
        message:
          "registry returned HTTP 429 for /v2/x/manifests/1 (TOOMANYREQUESTS: You have reached your pull rate limit)",
        hint: PULL_LIMIT_ADVICE.join("\n"),
      });
    }
    assert.equal(server.seen.length, requests);
    assert.deepEqual(clock.slept, slept);
    await image(`${other.host}/x:1`);
  });
}

test("E17: a storm of 429 costs one request a round, however many wait", async () => {
  await using server = await OddRegistry.start();
  server.odd = () => limitedFor("5");
  const { image } = client();
  const images = Array.from({ length: 200 }, (_, at) => image(`${server.host}/x${at}:1`));
  const outcomes = await Promise.allSettled(images);
  assert.ok(outcomes.every(({ status }) => status === "rejected"));
  // Four were on their way when the limit showed; then one tries again after each of the two waits.
  assert.equal(server.seen.length, 4 + 2);
});

test("E17: after a limit ended all that waited go on, and a later limit is waited for anew", async () => {
  await using server = await OddRegistry.start();
  for (let at = 0; at < 40; at++) server.hold(`x${at}`, madeImage({ layers: [`${at}`] }), "1");
  let seen = 0;
  server.odd = () => ([10, 11, 12, 40].includes(++seen) ? limitedFor("3") : undefined);
  const { image, clock } = client();
  await Promise.all(Array.from({ length: 40 }, (_, at) => image(`${server.host}/x${at}:1`)));
  assert.equal(seen, 2 * 40 + 4);
  assert.deepEqual(clock.slept.filter((ms) => ms === 3000).length, 2);
});

test("at most four requests are on their way to one registry, and eight in all", async () => {
  const [most, now] = [new Map<string, number>(), new Map<string, number>()];
  const count = (key: string, by: number) => {
    now.set(key, (now.get(key) ?? 0) + by);
    most.set(key, Math.max(most.get(key) ?? 0, now.get(key)!));
  };
  const { image } = client({
    fetch: async (to) => {
      const { host } = to as URL;
      for (const key of [host, "all"]) count(key, 1);
      await new Promise((done) => setTimeout(done, 2));
      for (const key of [host, "all"]) count(key, -1);
      return new Response("", { status: 404 });
    },
  });
  const references = ["a.local", "b.local", "c.local"].flatMap((host) =>
    Array.from({ length: 9 }, (_, at) => `${host}/x${at}:1`)
  );
  await Promise.allSettled(references.map((reference) => image(reference)));
  assert.deepEqual(Object.fromEntries(most), { "a.local": 4, "b.local": 4, "c.local": 4, all: 8 });
});

test("a mirror that limits us is left for the registry itself", async () => {
  await using mirror = await OddRegistry.start();
  await using server = await held();
  mirror.odd = () => LIMITED;
  const { image } = client({ settings: registrySettings([[`${server.host}.mirrors`, `http://${mirror.host}`]]) });
  await image(`${server.host}/x:1`);
  assert.deepEqual(mirror.seen.length, 1);
});
