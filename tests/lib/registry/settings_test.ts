import assert from "node:assert/strict";
import { test } from "node:test";
import { registryEntries, registrySettings } from "../../../lib/registry/settings.ts";

test("registrySettings() cuts a key at its last dot: hosts hold dots and a port", () => {
  const settings = registrySettings([
    ["registry.local:5000.insecure", true],
    ["registry.local:5000.mirrors", ["https://a.local/", "b.local:8443/cache"]],
    ["[::1]:5000.insecure", false],
  ]);
  assert.deepEqual(settings.get("registry.local:5000"), {
    insecure: true,
    mirrors: ["https://a.local", "https://b.local:8443/cache"],
  });
  assert.deepEqual(settings.get("[::1]:5000"), { insecure: false, mirrors: [] });
});

test("registrySettings() takes all names of Docker Hub for one registry, and the last value", () => {
  const settings = registrySettings([
    ["docker.io.mirrors", "https://one.local"],
    ["index.docker.io.mirrors", ["https://two.local"]],
  ]);
  assert.deepEqual([...settings], [["docker.io", { insecure: false, mirrors: ["https://two.local"] }]]);
});

test("registryEntries() reads a file's tables, the host quoted or cut at its dots", () => {
  assert.deepEqual(
    registryEntries({ "ghcr.io": { insecure: true }, docker: { io: { mirrors: ["https://m.local"] } } }),
    [["ghcr.io.insecure", true], ["docker.io.mirrors", ["https://m.local"]]],
  );
});

const REFUSED: [key: string, value: unknown, says: RegExp, hint?: RegExp][] = [
  [
    "docker.io.mirror",
    [],
    /unknown key 'registries\.docker\.io\.mirror'/,
    /did you mean registries\.docker\.io\.mirrors\?/,
  ],
  ["insecure", true, /unknown key 'registries\.insecure'/, /registries\.<host>\.insecure/],
  ["a b.insecure", true, /'a b' is not a host/],
  ["ghcr.io.insecure", "yes", /is "yes", must be true or false/],
  ["ghcr.io.mirrors", [5], /is 5, must be a list of addresses/],
  ["ghcr.io.mirrors", "ftp://x", /must be http:\/\/ or https:\/\/ addresses/],
  ["ghcr.io.mirrors", "https://user:secret@x", /^(?!.*secret).*must hold no user and password/],
];

for (const [key, value, says, hint] of REFUSED) {
  test(`registrySettings() refuses ${key}=${JSON.stringify(value)}`, () => {
    assert.throws(() => registrySettings([[key, value]]), { code: "usage", message: says, ...(hint && { hint }) });
  });
}
