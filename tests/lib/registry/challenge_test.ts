import assert from "node:assert/strict";
import { test } from "node:test";
import { type Challenge, parseChallenges } from "../../../lib/registry/challenge.ts";

const HEADERS: [header: string, challenges: Challenge[]][] = [
  ["", []],
  ['Basic realm="test"', [{ scheme: "basic", parameters: { realm: "test" } }]],
  [
    'Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull,push"',
    [{
      scheme: "bearer",
      parameters: {
        realm: "https://auth.docker.io/token",
        service: "registry.docker.io",
        scope: "repository:a/b:pull,push",
      },
    }],
  ],
  ['Bearer realm="a \\"b\\"", error=insufficient_scope', [
    { scheme: "bearer", parameters: { realm: 'a "b"', error: "insufficient_scope" } },
  ]],
  ['Negotiate, BASIC Realm = "x", Bearer realm="y"', [
    { scheme: "negotiate", parameters: {} },
    { scheme: "basic", parameters: { realm: "x" } },
    { scheme: "bearer", parameters: { realm: "y" } },
  ]],
  ['Bearer realm="never closed', [{ scheme: "bearer", parameters: { realm: '"never' } }, {
    scheme: "closed",
    parameters: {},
  }]],
  ["=;", []],
];

for (const [header, challenges] of HEADERS) {
  test(`parseChallenges() reads ${JSON.stringify(header)}`, () => {
    assert.deepEqual(parseChallenges(header), challenges);
  });
}
