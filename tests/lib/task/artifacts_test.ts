import { test } from "node:test";
import assert from "node:assert/strict";
import { collisions, effectiveArtifacts } from "../../../lib/task/artifacts.ts";
import { dataRows } from "../../support/data.ts";

test("effectiveArtifacts() puts /logs/artifacts in front unless it is declared", () => {
  const sources = (entries: Parameters<typeof effectiveArtifacts>[0]) =>
    effectiveArtifacts(entries).map((one) => `${one.service}:${one.source}>${one.destination}`);
  assert.deepEqual(sources(["/a/"]), ["main:/logs/artifacts>logs/artifacts", "main:/a/>a"]);
  assert.deepEqual(sources(["/a", "/logs/artifacts"]), ["main:/a>a", "main:/logs/artifacts>logs/artifacts"]);
  assert.deepEqual(sources([{ source: "/logs/artifacts", service: "db" }]), [
    "main:/logs/artifacts>logs/artifacts",
    "db:/logs/artifacts>logs/artifacts",
  ]);
});

const COLLISIONS: [entries: Parameters<typeof effectiveArtifacts>[0], pairs: string[]][] = [
  [["/a", "/b"], []],
  [["/a", "/a/b"], []],
  [["/a/b", "/a"], ["/a/b /a"]],
  [["/a", { source: "/a", exclude: ["x"] }], ["/a /a"]],
  [[{ source: "/a", destination: "x" }, { source: "/b", destination: "x/y" }], ["/a /b"]],
  [["/a", { source: "/a/b", destination: "a/c" }], ["/a /a/b"]],
  [["/"], ["/logs/artifacts /"]],
];
for (const [entries, pairs] of COLLISIONS) {
  test(`collisions() of ${JSON.stringify(entries)}`, () => {
    assert.deepEqual(
      collisions(effectiveArtifacts(entries)).map(([first, second]) => `${first.source} ${second.source}`),
      pairs,
    );
  });
}

const rows = dataRows("vectors/harbor-0.25.0/artifact-collisions.jsonl");
test(
  "artifacts land and collide as in Harbor 0.25.0",
  { skip: rows.length === 0 && "GYM_HARBOR_DATA is not set" },
  () => {
    for (const row of rows) {
      const effective = effectiveArtifacts(row.entries);
      // Harbor keeps the backslashes of a drive path; we refuse those by default.
      assert.deepEqual(
        effective.map(({ source, destination, service }) => ({ source, output: destination, service })),
        row.effective,
        row.case,
      );
      const pair = ({ source, service }: { source: string; service: string | null }) => ({
        source,
        service: service ?? "main",
      });
      assert.deepEqual(
        collisions(effective).map(([first, second]) => ({ first: pair(first), second: pair(second) })),
        row.collisions.map((one: { first: never; second: never }) => ({
          first: pair(one.first),
          second: pair(one.second),
        })),
        row.case,
      );
    }
  },
);
