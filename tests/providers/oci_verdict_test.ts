import { test } from "node:test";
import assert from "node:assert/strict";
import { asRoot, lost, notStarted, oddVariables } from "../../providers/_oci_verdict.ts";

const attempted = { id: "box", engine: "docker", cwd: "/w", user: "alice" };

test("notStarted() tells a task's fault from an engine's and from a sandbox that takes no more", () => {
  const rows: [string, boolean, string, RegExp][] = [
    [
      "unable to find user alice: no matching entries in passwd file",
      false,
      "sandbox.failed",
      /user alice is not in its image/,
    ],
    [
      'OCI runtime exec failed: exec failed: exec: "/bin/sh": stat /bin/sh: no such file or directory: unknown',
      false,
      "sandbox.lost",
      /\/bin\/sh cannot be started/,
    ],
    [
      "runtime: failed to create new OS thread (have 2 already; errno=11)",
      false,
      "sandbox.lost",
      /process table is full/,
    ],
    ["", true, "sandbox.failed", /docker did not start it in time/],
    ["something new went wrong", false, "sandbox.failed", /something new went wrong \(exit code 126\)/],
  ];
  for (const [text, stalled, code, message] of rows) {
    const error = notStarted({ kind: "refused", exitCode: 126, text, stalled }, attempted);
    assert.equal(error.code, code, text);
    assert.match(error.message, message);
  }
  assert.match(notStarted({ kind: "cwd" }, attempted).message, /working directory \/w is not there/);
});

test("lost() says how a sandbox ended, as far as anybody knows", () => {
  const gone = { state: "gone", oomKilled: null, exitCode: 137, text: "" } as const;
  assert.match(lost("box", gone).message, /exit code 137/);
  assert.match(lost("box", { ...gone, oomKilled: true }).message, /want of memory/);
  assert.match(
    lost("box", { ...gone, exitCode: null, text: "No such container: box" }).message,
    /not there any more \(No such container/,
  );
  assert.equal(lost("box", gone).code, "sandbox.lost");
});

test("oddVariables() finds what only bash hands on, and refuses what nobody can", () => {
  assert.deepEqual(oddVariables({ HOME: "/x", "a.b": "1", UID: "2" }, true), ["a.b", "UID"]);
  assert.deepEqual(oddVariables({ HOME: "/x" }, false), []);
  const refused: [Record<string, string>, boolean, RegExp][] = [
    [{ "a.b": "1" }, false, /"a\.b".*no bash/],
    [{ BIG: "x".repeat(131_072) }, true, /"BIG".*131076 bytes/],
    [{ "a=b": "x" }, true, /"a=b"/],
  ];
  for (const [env, hasBash, message] of refused) {
    assert.throws(() => oddVariables(env, hasBash), { code: "task.unsupported", message });
  }
});

test("asRoot() knows every way to say root", () => {
  for (const user of [undefined, "", "root", "0", "0:0", "root:root"]) assert.equal(asRoot(user), undefined);
  for (const user of ["alice", "1000", "1000:1000", "rooty", "0:5"]) assert.equal(asRoot(user), user);
});
