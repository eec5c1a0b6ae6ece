import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import process from "node:process";
import { test } from "node:test";
import { initOf, killTraces, namespaceOf } from "../../providers/_cluster_processes.ts";
import { writeTree } from "../support/tree.ts";

test("killTraces() ends what a sandbox's control groups name, and never us", async () => {
  const child = spawn("sleep", ["60"]);
  using group = writeTree({ "cgroup.procs": `${child.pid}\n${process.pid}\n` });
  const ended = once(child, "exit");
  assert.equal(killTraces({ namespace: undefined, groups: [group.path] }), true);
  assert.deepEqual(await ended, [null, "SIGKILL"]);
});

test("killTraces() finds nothing where there is nothing", () => {
  assert.equal(killTraces({ namespace: "mnt:[1]", groups: ["/not/there"] }), false);
});

test("a process of our own namespace, or whose number was given again, is no sandbox", () => {
  assert.equal(namespaceOf(initOf(process.pid)), undefined);
  assert.equal(namespaceOf({ pid: 1, start: "another" }), undefined);
});
