import assert from "node:assert/strict";
import { test } from "node:test";
import { HarborError } from "../../lib/errors.ts";
import { parseOverrides } from "../../cmd/_overrides.ts";

const set: [string[], (overrides: ReturnType<typeof parseOverrides>) => unknown, unknown][] = [
  [["harbor_environment_server.enforce_task_timeouts=false"], (o) => o.harbor_environment_server, {
    enforce_task_timeouts: false,
  }],
  [["harbor_environment_server.sandbox_env.LANG=C"], (o) => o.harbor_environment_server, {
    sandbox_env: { LANG: "C" },
  }],
  [["++sandbox.host.network=host"], (o) => o.sandbox, { host: { network: "host" } }],
  [["++host.run=skip"], (o) => o.sandbox, { host: { run: "skip" } }],
  [["sandbox.docker.x=1", "+sandbox.docker.x=2"], (o) => o.sandbox, { docker: { x: 2 } }],
  [["responses_create_params.temperature=0.5"], (o) => o.responses_create_params, { temperature: 0.5 }],
  [["+responses_create_params.stop=[a, 'b c', 3]"], (o) => o.responses_create_params, { stop: ["a", "b c", 3] }],
  [["+responses_create_params.extra={k: {n: null}}"], (o) => o.responses_create_params, { extra: { k: { n: null } } }],
  [['+responses_create_params.x="1"'], (o) => o.responses_create_params, { x: "1" }],
  [["+responses_create_params.x=a=b"], (o) => o.responses_create_params, { x: "a=b" }],
  [["gym.defaults.timeout_multiplier=2"], (o) => o.gym.defaults, { timeout_multiplier: 2 }],
  [["++sandbox.opensandbox.x=1"], (o) => [o.sandbox, o.withoutEffect], [{}, ["sandbox.opensandbox.x"]]],
  [["++run.whatever=1"], (o) => o.withoutEffect, ["run.whatever"]],
  [["++builds.tool=podman", "builds.concurrency=2"], (o) => o.builds, { tool: "podman", concurrency: 2 }],
  [["registries.127.0.0.1:5000.insecure=true"], (o) => [...o.registries], [
    ["127.0.0.1:5000", { insecure: true, mirrors: [] }],
  ]],
];
for (const [words, read, wanted] of set) {
  test(`parseOverrides() of ${words.join(" ")}`, () => assert.deepEqual(read(parseOverrides(words)), wanted));
}

const refused: [string, RegExp, RegExp][] = [
  ["nokey=1", /unknown key 'nokey'/, /keys begin with builds\., sandbox\./],
  ["sandbix.host.network=host", /unknown key/, /did you mean sandbox\.host\.network\?/],
  [
    "harbor_environment_server.enforce_task_timeout=false",
    /unknown key/,
    /did you mean harbor_environment_server\.enforce_task_timeouts\?/,
  ],
  ["sandbox.podmn.x=1", /unknown sandbox 'podmn'/, /did you mean sandbox\.podman\.x\?/],
  ["run.whatever=1", /unknown key/, /\+\+run\.whatever=… sets it all the same/],
  ["registries.docker.io.insecur=true", /unknown key/, /did you mean registries\.docker\.io\.insecure\?/],
  ["word", /neither an option nor an override/, /key=value/],
  ["~sandbox.host", /taking keys out/, /key=value/],
  ["sandbox.docker.x=a,b", /not in this version/, /sandbox\.docker\.x=\[a,b\]/],
  ["sandbox.docker.x=[a", /is not a value/, /quote it/],
  ["gym.defaults.timeout_multiplier=0", /is 0, must be above 0/, /own limits/],
  ["gym.defaults.num_repeats=1.5", /is 1\.5, must be a whole number/, /--num-repeats/],
  ["sandbox=1", /unknown key/, /keys begin with/],
  ["sandbox.__proto__.x=1", /unknown sandbox/, /docker/],
  ["+sandbox.host.__proto__.x=1", /unknown key/, /another name/],
];
for (const [word, message, hint] of refused) {
  test(`parseOverrides() refuses ${word}`, () =>
    assert.throws(() => parseOverrides([word]), (error) => {
      assert.ok(error instanceof HarborError);
      assert.equal(error.code, "usage");
      assert.match(error.message, message);
      assert.match(error.hint ?? "", hint);
      return true;
    }));
}
