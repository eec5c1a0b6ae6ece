import { test } from "node:test";
import assert from "node:assert/strict";
import { HarborError } from "../../../lib/errors.ts";
import { buildOptions } from "../../../lib/images/options.ts";

test("buildOptions() has the defaults of the contract", () => {
  const { enabled, tool, repository, platform, force, concurrency, timeout_s, retries } = buildOptions({}, {});
  assert.deepEqual(
    { enabled, tool, repository, platform, force, concurrency, timeout_s, retries },
    {
      enabled: true,
      tool: undefined,
      repository: undefined,
      platform: "linux/amd64",
      force: false,
      concurrency: 4,
      timeout_s: 3600,
      retries: 2,
    },
  );
});

const repositories: [string, Record<string, unknown>, Record<string, string>, string | undefined][] = [
  [
    "what is given wins over the environment",
    { repository: "r.io/a/" },
    { NEMO_GYM_BUILD_REPOSITORY: "r.io/b" },
    "r.io/a",
  ],
  ["the environment stands in", {}, { NEMO_GYM_BUILD_REPOSITORY: "r.io/b" }, "r.io/b"],
  ["null switches the environment's off", { repository: null }, { NEMO_GYM_BUILD_REPOSITORY: "r.io/b" }, undefined],
  ["a host may have a port", { repository: "127.0.0.1:5000/x" }, {}, "127.0.0.1:5000/x"],
];
for (const [name, given, env, wanted] of repositories) {
  test(`builds.repository: ${name}`, () => assert.equal(buildOptions(given, env).repository, wanted));
}

const refused: [string, Record<string, unknown>, RegExp, RegExp][] = [
  ["an unknown key", { toool: "docker" }, /unknown key 'builds\.toool'/, /did you mean builds\.tool\?/],
  ["a tool that nobody has", { tool: "kaniko" }, /builds\.tool is "kaniko"/, /default/],
  ["a bad platform", { platform: "amd64" }, /builds\.platform is "amd64": must be os\/arch/, /default/],
  ["no builds at a time", { concurrency: 0 }, /builds\.concurrency is 0/, /default/],
  ["a word for a switch", { force: "yes" }, /builds\.force is "yes"/, /default/],
  ["a tag on the repository", { repository: "r.io/a:1" }, /must have no tag/, /hb__/],
  ["a repository that is none", { repository: "R.io/A B" }, /not an image reference/, /write/],
];
for (const [name, given, message, hint] of refused) {
  test(`buildOptions() refuses ${name}`, () =>
    assert.throws(() => buildOptions(given, {}), (error) => {
      assert.ok(error instanceof HarborError && error.code === "usage");
      assert.match(error.message, message);
      assert.match(error.hint ?? "", hint);
      return true;
    }));
}
