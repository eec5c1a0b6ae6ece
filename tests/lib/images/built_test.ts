import { test } from "node:test";
import assert from "node:assert/strict";
import { type BuiltFact, builtRecord, withBuilt } from "../../../lib/images/built.ts";

const fact: BuiltFact = {
  hash: "h1",
  service: "main",
  reference: "hb__h1",
  tool: "podman",
  pushed: false,
  platform: "linux/amd64",
  context: "environment",
  tasks: ["b"],
  forced: [],
};

test("withBuilt() adds tasks and services and keeps what it does not understand", () => {
  const before = { h1: { services: { db: "hb__h1__db" }, tasks: ["z", "a"], upstream: { x: 1 } }, note: "kept" };
  const after = withBuilt(before, [fact]);
  assert.deepEqual(after, {
    note: "kept",
    h1: {
      services: { db: "hb__h1__db", main: "hb__h1" },
      tool: "podman",
      pushed: false,
      platform: "linux/amd64",
      context: "environment",
      tasks: ["a", "b", "z"],
      forced_tasks: [],
      upstream: { x: 1 },
    },
  });
  assert.deepEqual(withBuilt(after, [fact]), after, "twice is once");
});

test("withBuilt() leaves an image that another program wrote in its own way as it is", () => {
  const before = { h1: { services: { main: { image: "hb__h1", more: 1 } }, tasks: ["b"], forced_tasks: [] } };
  const after = withBuilt(before, [{ ...fact, tool: undefined }]) as { h1: Record<string, unknown> };
  assert.deepEqual(after.h1.services, before.h1.services);
  assert.equal("tool" in after.h1, false);
});

test("a task whose folder has another hash now leaves the entry that it was in", () => {
  const file = { h0: { tasks: ["a", "b"], forced_tasks: ["b"] }, h1: { tasks: [] }, other: "kept" };
  const after = withBuilt(file, [fact], new Map([["b", new Set(["h1"])]])) as Record<string, Record<string, unknown>>;
  assert.deepEqual([after.h0!.tasks, after.h0!.forced_tasks, after.h1!.tasks], [["a"], [], ["b"]]);
});

const entries: [string, unknown, unknown][] = [
  ["ours", { services: { main: "hb__1" }, tool: "podman", pushed: false, platform: "linux/amd64/v2" }, {
    services: { main: "hb__1" },
    tool: "podman",
    pushed: false,
    platform: "linux/amd64",
  }],
  ["images as objects", { services: { main: { image: "hb__1", x: 1 }, bad: 7 } }, {
    services: { main: "hb__1" },
    pushed: false,
  }],
  ["a pin without `pushed`", { services: { main: `r/hb__1@sha256:${"a".repeat(64)}` }, pushed: "yes", tool: 3 }, {
    services: { main: `r/hb__1@sha256:${"a".repeat(64)}` },
    pushed: true,
  }],
  ["no object", 7, undefined],
];
for (const [name, entry, read] of entries) {
  test(`builtRecord() reads an entry as far as it parses: ${name}`, () =>
    assert.deepEqual(builtRecord({ h: entry }, "h"), read));
}
