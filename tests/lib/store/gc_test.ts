import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, utimesSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { systemClock } from "../../../lib/runtime/clock.ts";
import { collectGarbage, type GcFacts, type GcImage, GRACE_MS, planGc, RECENT_MS } from "../../../lib/store/gc.ts";
import { usePath } from "../../../lib/store/use.ts";
import { bytesOf, makeImage, putImage, sha256, testStore } from "../../support/images.ts";
import { TempFolder } from "../../support/tasks.ts";

const DAY = 24 * 3_600_000;
const NOW = 100 * DAY;

const image = (name: string, ageMs: number, ...blobs: [string, number][]): GcImage => ({
  manifestDigest: `m-${name}`,
  names: name === "" ? [] : [name],
  blobs: [[`m-${name}`, 1] as [string, number], ...blobs].map(([digest, size]) => ({ digest, size })),
  usedAtMs: NOW - ageMs,
});

function facts(images: GcImage[], over: Partial<GcFacts> = {}): GcFacts {
  const blobs = [
    ...new Map(
      images.flatMap(({ blobs, usedAtMs }) => blobs.map((blob) => [blob.digest, { ...blob, changedAtMs: usedAtMs }])),
    ).values(),
  ];
  return { images, blobs, foreign: new Set(), held: new Set(), nowMs: NOW, ...over };
}

const OLD = image("old", 30 * DAY, ["base", 100], ["old-top", 10]);
const MIDDLE = image("middle", 10 * DAY, ["base", 100], ["middle-top", 10]);
const NEW = image("new", RECENT_MS / 2, ["base", 100], ["new-top", 10]);

const CASES: [
  name: string,
  facts: GcFacts,
  options: Parameters<typeof planGc>[1],
  images: string[],
  blobs: string[],
][] = [
  ["nothing asked: named images stay", facts([OLD, MIDDLE, NEW]), {}, [], []],
  ["by age, shared layers stay", facts([OLD, MIDDLE, NEW]), { olderThanMs: 20 * DAY }, ["m-old"], ["m-old", "old-top"]],
  ["by age 0: what was used this hour stays", facts([OLD, MIDDLE, NEW]), { olderThanMs: 0 }, ["m-old", "m-middle"], [
    "m-middle",
    "m-old",
    "middle-top",
    "old-top",
  ]],
  [
    "what a process holds stays",
    facts([OLD, MIDDLE], { held: new Set(["m-old"]) }),
    { olderThanMs: DAY },
    ["m-middle"],
    [
      "m-middle",
      "middle-top",
    ],
  ],
  ["by size: the longest unused first, no more than needed", facts([NEW, MIDDLE, OLD]), { maxBytes: 125 }, ["m-old"], [
    "m-old",
    "old-top",
  ]],
  ["by size: what is in use stays, even if all is too large", facts([NEW, MIDDLE]), { maxBytes: 0 }, ["m-middle"], [
    "m-middle",
    "middle-top",
  ]],
  ["an image without a name goes after a day", facts([image("", 2 * DAY, ["l", 1]), NEW]), {}, ["m-"], ["l", "m-"]],
  ["an image that lost its name just now stays", facts([image("", DAY / 2, ["l", 1])]), {}, [], []],
  [
    "a blob that nothing names goes after a day",
    facts([NEW], {
      blobs: [
        { digest: "stray", size: 5, changedAtMs: NOW - GRACE_MS - 1 },
        { digest: "fresh", size: 5, changedAtMs: NOW - 1000 },
        { digest: "others", size: 5, changedAtMs: 0 },
      ],
      foreign: new Set(["others"]),
    }),
    {},
    [],
    ["stray"],
  ],
  [
    "a layer that another pull has just taken stays without its image",
    facts([OLD], { blobs: [{ digest: "old-top", size: 10, changedAtMs: NOW - 1000 }] }),
    { olderThanMs: DAY },
    ["m-old"],
    [],
  ],
];
for (const [name, given, options, images, blobs] of CASES) {
  test(`planGc(): ${name}`, () => {
    const plan = planGc(given, options);
    assert.deepEqual(plan.images.map(({ manifestDigest }) => manifestDigest), images);
    assert.deepEqual(plan.blobs.map(({ digest }) => digest).sort(), blobs);
    assert.equal(plan.freedBytes + plan.keptBytes, given.blobs.reduce((sum, { size }) => sum + size, 0));
  });
}

const age = (path: string, ms: number): void => utimesSync(path, new Date(Date.now() - ms), new Date(Date.now() - ms));

test("collectGarbage() removes old images and strays, keeps what this process found, other tools' entries and their blobs", async () => {
  using temp = new TempFolder("gc");
  const store = testStore(temp.path);
  const [old, used, foreign] = [1, 2, 3].map((index) => makeImage([bytesOf(`layer ${index}`)]));
  for (const [one, name] of [[old, "old:1"], [used, "used:1"], [foreign, "x:1"]] as const) {
    await putImage(store, one!, [name]);
  }
  const index = JSON.parse(readFileSync(temp.join("index.json"), "utf8"));
  for (const entry of index.manifests) {
    if (entry.digest === foreign!.manifest.digest) delete entry.annotations["io.gym-harbor.names"];
  }
  writeFileSync(temp.join("index.json"), JSON.stringify(index));
  const stray = bytesOf("stray");
  writeFileSync(store.blobPath(sha256(stray)), stray);
  mkdirSync(temp.join(".partial", "in-dead"));
  const blobs = [old, used, foreign].flatMap((one) =>
    [one!.manifest, one!.config, ...one!.layers].map(({ digest }) => digest)
  );
  for (const digest of [...blobs, sha256(stray)]) age(store.blobPath(digest), 40 * DAY);
  age(temp.join(".partial", "in-dead"), 40 * DAY);
  await store.find("used:1", "linux/amd64");
  age(usePath(temp.path, used!.manifest.digest), 40 * DAY);
  const options = { olderThanMs: 30 * DAY };
  const dry = await collectGarbage(testStore(temp.path), { ...options, dryRun: true }, systemClock);
  assert.deepEqual(dry.images.map(({ names }) => names), [["docker.io/library/old:1"]]);
  assert.equal(existsSync(store.blobPath(sha256(stray))), true);
  const report = await collectGarbage(testStore(temp.path), { ...options, dryRun: false }, systemClock);
  assert.deepEqual(report.blobs.map(({ digest }) => digest).sort(), dry.blobs.map(({ digest }) => digest).sort());
  const there = (one: typeof old) =>
    [one!.manifest, one!.config, ...one!.layers].map(({ digest }) => store.has(digest));
  assert.deepEqual(there(old), [false, false, false]);
  assert.deepEqual(there(used), [true, true, true], "this process found it");
  assert.deepEqual(there(foreign), [true, true, true]);
  assert.equal(store.has(sha256(stray)), false);
  assert.equal(existsSync(temp.join(".partial", "in-dead")), false);
  assert.deepEqual(await store.faults(), []);
});
