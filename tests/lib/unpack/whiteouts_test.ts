import assert from "node:assert/strict";
import { test } from "node:test";
import { follow } from "../../../lib/unpack/links.ts";
import { neededWhiteouts, opaqueOf } from "../../../lib/unpack/whiteouts.ts";

test("opaqueOf() counts folders that are hidden and made anew", () => {
  const here = (path: string) => ["a", "b/c"].includes(path);
  assert.deepEqual([...opaqueOf(["a"], ["b/c", "d"], here)], ["a", "b/c"]);
});

const CASES: [name: string, whiteouts: string[], needed: string[]][] = [
  ["of a name below", ["x"], ["x"]],
  ["said twice", ["x", "x"], ["x"]],
  ["of a name that is nowhere below", ["nowhere"], []],
  ["of a name that the layer has itself", ["here"], []],
  ["in an opaque folder", ["o/x"], []],
  ["deep in an opaque folder", ["o/p/q/x"], []],
  ["beside an opaque folder whose name it begins with", ["ox/y"], ["ox/y"]],
];
for (const [name, whiteouts, needed] of CASES) {
  test(`neededWhiteouts(): one ${name}`, () => {
    const below = (path: string) => path !== "nowhere";
    assert.deepEqual(neededWhiteouts(whiteouts, new Set(["o"]), (path) => path === "here", below), needed);
  });
}

test("neededWhiteouts(): none where the top folder is opaque", () => {
  assert.deepEqual(neededWhiteouts(["x", "a/b"], new Set([""]), () => false, () => true), []);
});

const LINKS = new Map([
  ["lib", "usr/lib"],
  ["var/run", "/run"],
  ["up", "../../.."],
  ["loop", "loop"],
  ["a/b/back", "../../lib"],
]);
const PATHS: [path: string, real: string | undefined][] = [
  ["etc/x", "etc/x"],
  ["lib/x", "usr/lib/x"],
  ["var/run/x", "run/x"],
  ["a/b/back/x", "usr/lib/x"],
  ["up", undefined],
  ["loop/x", undefined],
];
for (const [path, real] of PATHS) {
  test(`follow("${path}") is ${real}`, () => assert.equal(follow(path, LINKS), real));
}
