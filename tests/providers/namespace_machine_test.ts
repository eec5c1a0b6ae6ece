import assert from "node:assert/strict";
import { test } from "node:test";
import { HarborError } from "../../lib/errors.ts";
import { type Machine, refuseAddedUsers, whyOwnOnly } from "../../providers/_namespace_machine.ts";

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

const machine = (ids: Machine["ids"]) => ({ ids, idsReason: "newuidmap is not installed" }) as Machine;
const ADDED = { taskId: "t", addsUser: { line: 3, words: "useradd agent" } };

test("a task that adds a user of its own is refused where one id is all there is, by line and missing piece", () => {
  assert.throws(() => refuseAddedUsers(machine("own"), ADDED, {}), (error: HarborError) => {
    assert.equal(error.code, "task.unsupported");
    assert.match(
      error.message,
      /^t has a user of its own \(Dockerfile line 3: useradd agent\).*newuidmap is not installed/,
    );
    assert.match(error.hint!, /usermod --add-subuids/);
    return true;
  });
});

test("a task that adds a user runs where ids are to be had, and one that adds none runs anywhere", () => {
  refuseAddedUsers(machine("all"), ADDED, {});
  refuseAddedUsers(machine("own"), { taskId: "t" }, {});
});
