/** Which processes count as engine clients that outlived their run. */
import assert from "node:assert/strict";
import process from "node:process";
import { test } from "node:test";
import { clientOf, ownerVariable } from "../../providers/_oci_orphans.ts";

const DOCKER = { engine: "docker", path: "/usr/local/bin/docker" } as const;
const environ = (variables: Record<string, string>): string =>
  Object.entries(variables).map(([name, value]) => `${name}=${value}\0`).join("");
const ours = environ({ PATH: "/bin", ...ownerVariable("abcd1234"), HOME: "/root" });

test("clientOf() knows a client by its program and the owner in its environment", () => {
  const client = clientOf(DOCKER, "docker\0run\0-i\0image\0", ours);
  assert.equal(client?.verb, "run");
  assert.equal(client?.owner.run, "abcd1234");
  assert.equal(client?.owner.pid, process.pid);
});

for (
  const [what, argv, env] of [
    ["another program that inherited the variable", "conmon\0--api\0", ours],
    ["a client of somebody else's", "docker\0run\0image\0", environ({ PATH: "/bin" })],
    ["a variable of that name that is not ours", "docker\0run\0", environ({ GYM_HARBOR_OWNER: "{" })],
    ["a process that has ended", "", ""],
  ] as const
) {
  test(`clientOf() leaves ${what} alone`, () => assert.equal(clientOf(DOCKER, argv, env), undefined));
}
