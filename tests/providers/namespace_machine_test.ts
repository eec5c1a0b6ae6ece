import assert from "node:assert/strict";
import { test } from "node:test";
import { whyOwnOnly } from "../../providers/_namespace_machine.ts";

for (
  const [what, stderr, hasNewuidmap, said] of [
    ["newuidmap is missing", "unshare: failed to find newuidmap\n", false, "newuidmap is not installed"],
    [
      "the user has no name here",
      "unshare: you (user 54321) don't exist.\n",
      true,
      "id 54321 has no name on this machine, so /etc/subuid can give it no range",
    ],
    [
      "the user has no range",
      'unshare: no line matching user "a" in /etc/subuid\n',
      true,
      'unshare: no line matching user "a" in /etc/subuid',
    ],
    ["nothing was said", "", true, "newuidmap gives this user no range of ids"],
  ] as const
) {
  test(`why there is one id only: ${what}`, () => assert.equal(whyOwnOnly(stderr, hasNewuidmap), said));
}
