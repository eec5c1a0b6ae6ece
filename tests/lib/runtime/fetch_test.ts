import assert from "node:assert/strict";
import process from "node:process";
import { test } from "node:test";
import { systemFetch } from "../../../lib/runtime/fetch.ts";
import { OddRegistry } from "../../support/odd_registry.ts";

// The only test of this file: what proxies there are is read once, at the first request of a process.
test("systemFetch() asks no proxy for this machine itself", async () => {
  await using server = await OddRegistry.start();
  await using proxy = await OddRegistry.start();
  process.env.HTTP_PROXY = process.env.http_proxy = `http://${proxy.host}`;
  process.env.NO_PROXY = "example.org";
  delete process.env.no_proxy;
  server.put("/", "here");
  assert.equal(await (await systemFetch(`http://${server.host}/`)).text(), "here");
  assert.equal(proxy.seen.length, 0);
  assert.match(process.env.NO_PROXY, /^example\.org,localhost/, "what was said before stays");
});
