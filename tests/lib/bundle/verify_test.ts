import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, cpSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { BASE, BUILT, BundleWork, OTHER } from "../../support/bundles.ts";

const LAYER = `images/oci/blobs/sha256/${OTHER.layers[1]!.digest.slice(7)}`;
const MANIFEST = `images/oci/blobs/sha256/${BASE.manifest.digest.slice(7)}`;
const TEST_SH = "dataset/words/beta/tests/test.sh";

/** What happens to a bundle on its way → the files that verify names, with what it says. */
const damages: Record<string, { do: (out: string) => void; faults: Record<string, RegExp> }> = {
  "a flipped byte in a layer": {
    do: (out) => flip(join(out, LAYER)),
    faults: { [LAYER]: /its bytes are not those of its sum/ },
  },
  "a flipped byte in a task": {
    do: (out) => flip(join(out, TEST_SH)),
    faults: { [TEST_SH]: /not those of its sum/, "dataset/words/beta": /its task digest is/ },
  },
  "a missing blob": {
    do: (out) => rmSync(join(out, LAYER)),
    faults: { [LAYER]: /is missing/, [`images/oci/blobs/sha256/${OTHER.manifest.digest.slice(7)}`]: /missing blobs/ },
  },
  "a missing manifest": {
    do: (out) => rmSync(join(out, MANIFEST)),
    faults: { [MANIFEST]: /is missing/ },
  },
  "a file more": {
    do: (out) => writeFileSync(join(out, "dataset/words/notes.txt"), "x"),
    faults: { "dataset/words/notes.txt": /is not of this bundle/ },
  },
  "a link more": {
    do: (out) => symlinkSync("/etc", join(out, "dataset/words/alpha/etc")),
    faults: { "dataset/words/alpha/etc": /is not of this bundle/ },
  },
  "a newer schema": {
    do: (out) => edit(join(out, "bundle.json"), '"schema_version": 1', '"schema_version": 2'),
    faults: { "bundle.json": /schema_version 2, this gym-harbor reads 1/ },
  },
  "an index of another form": {
    do: (out) => edit(join(out, "bundle.json"), '"needs_network"', '"needs_networks"'),
    faults: { "bundle.json": /needs_network/ },
  },
  "a path that leads out": {
    do: (out) => edit(join(out, "bundle.json"), '"path": "beta"', '"path": "../../beta"'),
    faults: { "bundle.json": /must be a path that stays inside/ },
  },
  "a sums file that was cut off": {
    do: (out) => writeFileSync(join(out, "SHA256SUMS"), readFileSync(join(out, "SHA256SUMS"), "utf8").slice(0, -9)),
    faults: { "SHA256SUMS": /line \d+ is not/, "images/oci/oci-layout": /not of this bundle/ },
  },
  "a sum of a file elsewhere": {
    do: (out) => writeFileSync(join(out, "SHA256SUMS"), `${"0".repeat(64)}  ../words/dataset.toml\n`, { flag: "a" }),
    faults: { "SHA256SUMS": /names a file outside of the bundle/ },
  },
  "a disk without modes and links": {
    do: (out) => {
      chmodSync(join(out, "dataset/words/alpha/tests/run"), 0o644);
      rmSync(join(out, "dataset/words/alpha/tests/link"));
      writeFileSync(join(out, "dataset/words/alpha/tests/link"), "#!/bin/sh\n");
      rmSync(join(out, "dataset/words/alpha/tests/nothing"), { recursive: true });
    },
    faults: {
      "dataset/words/alpha/tests/run": /is no longer executable/,
      "dataset/words/alpha/tests/link": /is no longer a link to run/,
      "dataset/words/alpha/tests/nothing": /is no longer a folder/,
    },
  },
  "a task that went": {
    do: (out) => renameSync(join(out, "dataset/words/deep"), join(out, "dataset/words/.deep")),
    faults: {
      "dataset/words/deep/gamma": /./,
      "dataset/words/deep/gamma/task.toml": /is missing/,
      "dataset/words/.deep/gamma/task.toml": /not of this bundle/,
    },
  },
};

for (const [damage, { do: act, faults }] of Object.entries(damages)) {
  test(`verify names the file: ${damage}`, async () => {
    using work = await BundleWork.make();
    await work.export("out");
    act(work.temp.join("out"));
    const said = await work.faults("out");
    for (const [file, what] of Object.entries(faults)) {
      const one = said.find((line) => line.startsWith(`${file}: `));
      assert.ok(one !== undefined && what.test(one), `${file}: ${said.join("\n")}`);
    }
    const shown = new Set(said.map((line) => line.slice(0, line.indexOf(": "))));
    assert.equal(shown.size, said.length, "one fault a file");
  });
}

test("verify lists all faults, not the first alone", async () => {
  using work = await BundleWork.make();
  await work.export("out");
  const out = work.temp.join("out");
  flip(join(out, LAYER));
  rmSync(join(out, TEST_SH));
  writeFileSync(join(out, "extra"), "");
  const said = (await work.faults("out")).join("\n");
  for (const file of [LAYER, TEST_SH, "extra"]) {
    assert.match(said, new RegExp(`^${file.replaceAll(".", "\\.")}: `, "m"));
  }
});

test("verify asks for the platform it is told, and for none otherwise", async () => {
  using work = await BundleWork.make();
  await work.export("out");
  assert.deepEqual(await work.faults("out"), []);
  assert.deepEqual(await work.faults("out", "linux/x86_64"), []);
  assert.deepEqual(await work.faults("out", "linux/arm64"), [
    "bundle.json: its images are for linux/amd64, not for linux/arm64",
  ]);
});

test("half a bundle, and no bundle, are no list of faults", async () => {
  using work = await BundleWork.make();
  await work.export("out");
  for (const gone of ["bundle.json", "SHA256SUMS"]) {
    const copy = work.temp.join(`without-${gone}`);
    cpSync(work.temp.join("out"), copy, { recursive: true });
    rmSync(join(copy, gone));
    await assert.rejects(work.faults(`without-${gone}`), /half a bundle|no bundle/);
  }
  await assert.rejects(work.faults("words"), /is no bundle/);
});

test("a bundle that nobody may write verifies", async () => {
  using work = await BundleWork.make();
  await work.export("out");
  execFileSync("chmod", ["-R", "a-w", work.temp.join("out")]);
  assert.deepEqual(await work.faults("out"), []);
  execFileSync("chmod", ["-R", "u+w", work.temp.join("out")]);
});

test("the names of built images are found as they are", async () => {
  using work = await BundleWork.make();
  await work.export("out");
  const index = join(work.temp.join("out"), "images/oci/index.json");
  edit(index, BUILT, BUILT.replace("0123", "3210"));
  assert.match((await work.faults("out")).join("\n"), new RegExp(`${BUILT} does not lead to an image`));
});

function flip(path: string): void {
  const bytes = readFileSync(path);
  bytes[bytes.length >> 1]! ^= 1;
  writeFileSync(path, bytes);
}

function edit(path: string, from: string, to: string): void {
  const text = readFileSync(path, "utf8");
  assert.ok(text.includes(from), `${path} has ${from}`);
  writeFileSync(path, text.replaceAll(from, to));
}
