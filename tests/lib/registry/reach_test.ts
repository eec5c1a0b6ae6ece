import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { loginHosts } from "../../../lib/registry/credential_files.ts";
import { reachAll } from "../../../lib/registry/reach.ts";
import { registrySettings } from "../../../lib/registry/settings.ts";
import { leapingClock } from "../../support/leaping_clock.ts";
import { OddRegistry } from "../../support/odd_registry.ts";

const signal = new AbortController().signal;

test("reachAll() asks Docker Hub's mirror and every named host once, and says which answer and why not", async () => {
  await using mirror = await OddRegistry.start();
  await using closed = await OddRegistry.start();
  await using page = await OddRegistry.start();
  mirror.odd = () => ({ status: 401, headers: { "www-authenticate": 'Basic realm="x"' } });
  page.odd = () => ({ status: 503, body: "<html>busy</html>" });
  const found = await reachAll([closed.host, page.host, mirror.host], {
    fetch: (url, init) =>
      String(url).includes(closed.host) ? Promise.reject(new TypeError("connection refused")) : fetch(url, init),
    clock: leapingClock(),
    settings: registrySettings([["docker.io.mirrors", [`http://${mirror.host}`]]]),
    credentials: (host) =>
      Promise.resolve(host === mirror.host ? { kind: "basic", username: "u", password: "secret" } : undefined),
  }, signal);
  assert.deepEqual(found.map(({ host, answers, login }) => [host, answers, login]), [
    ["docker.io", true, true],
    [closed.host, false, false],
    [page.host, false, false],
    [mirror.host, true, true],
  ]);
  assert.match(found[1]!.reason!, /refused/);
  assert.match(found[2]!.reason!, /503/);
  assert.doesNotMatch(JSON.stringify(found), /secret/);
  assert.equal(mirror.asked.filter((line) => line === "GET /v2/").length, 2);
});

test("loginHosts() names the registries of login files by their common names, and nothing secret", async () => {
  const folder = mkdtempSync(join(tmpdir(), "gh-logins-"));
  try {
    writeFileSync(
      join(folder, "config.json"),
      JSON.stringify({
        auths: { "https://index.docker.io/v1/": { auth: "c2VjcmV0OnNlY3JldA==" }, "ghcr.io/org": {} },
        credHelpers: { "quay.io": "x" },
      }),
    );
    assert.deepEqual(await loginHosts({ DOCKER_CONFIG: folder }), ["docker.io", "ghcr.io", "quay.io"]);
    assert.deepEqual(await loginHosts({}), []);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
