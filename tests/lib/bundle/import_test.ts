import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { test } from "node:test";
import { importImages, intoEngine, intoStore, type TakeImage } from "../../../lib/bundle/import.ts";
import { pushedName, registryPlace } from "../../../lib/bundle/push.ts";
import type { Bundle, BundleImage } from "../../../lib/bundle/schema.ts";
import type { LocalImage, SandboxProvider } from "../../../lib/sandbox/provider.ts";
import { BASE, BUILT, BundleWork, OTHER, PIN } from "../../support/bundles.ts";
import { never, testStore } from "../../support/images.ts";

async function outcomes(bundle: Bundle, work: BundleWork, take: TakeImage): Promise<string[]> {
  const from = testStore(work.temp.join("out/images/oci"), true);
  const taken = await Array.fromAsync(importImages(bundle, from, take, never));
  return taken.map(({ image, outcome }) => `${image.refs[0]} ${outcome}`).sort();
}

test("an import into a store brings every name, and a second one does nothing", async () => {
  using work = await BundleWork.make();
  const bundle = await work.export("out");
  const from = testStore(work.temp.join("out/images/oci"), true);
  const own = testStore(work.temp.join("own"));
  const take = intoStore(own, from);
  assert.deepEqual(await outcomes(bundle, work, take), ["debian:12 taken", `${BUILT} taken`]);
  for (const ref of ["debian:12", PIN]) {
    assert.equal((await own.find(ref, "linux/amd64"))?.config.digest, BASE.config.digest);
  }
  assert.deepEqual(await outcomes(bundle, work, take), ["debian:12 there", `${BUILT} there`]);
  rmSync(own.blobPath(OTHER.layers[1]!.digest));
  assert.deepEqual(
    await outcomes(bundle, work, take),
    ["debian:12 there", `${BUILT} taken`],
    "what went is brought again",
  );
});

/** An engine of a few names; `tags` is what it was told to call an image. */
class FakeEngine {
  readonly tags: string[][] = [];
  constructor(readonly images: Map<string, string>) {}

  local(reference: string): Promise<LocalImage | undefined> {
    const configDigest = this.images.get(reference);
    return Promise.resolve(
      configDigest === undefined ? undefined : { configDigest, repoDigests: [], config: {}, platform: "linux/amd64" },
    );
  }

  takeIn(image: { config: { digest: string } }, _store: unknown, names: string[]): Promise<void> {
    this.tags.push(names);
    for (const name of names) this.images.set(name, image.config.digest);
    return Promise.resolve();
  }
}

test("an import into an engine takes no name away from another image, and is done once", async () => {
  using work = await BundleWork.make();
  const bundle = await work.export("out");
  const engine = new FakeEngine(new Map([["debian:12", `sha256:${"9".repeat(64)}`]]));
  const take = intoEngine(engine as unknown as SandboxProvider, testStore(work.temp.join("out/images/oci"), true));
  assert.deepEqual(await outcomes(bundle, work, take), ["debian:12 taken", `${BUILT} taken`]);
  const alias = (ref: string) => bundle.images.find(({ refs }) => refs.includes(ref))!.alias;
  assert.deepEqual(engine.tags.sort(), [[alias("debian:12")], [alias(BUILT), BUILT]].sort());
  assert.equal(engine.images.get("debian:12"), `sha256:${"9".repeat(64)}`);
  assert.deepEqual(await outcomes(bundle, work, take), ["debian:12 there", `${BUILT} there`]);
});

test("an import names the image that is not whole", async () => {
  using work = await BundleWork.make();
  const bundle = await work.export("out");
  const from = testStore(work.temp.join("out/images/oci"), true);
  rmSync(from.blobPath(OTHER.layers[1]!.digest));
  const take = intoStore(testStore(work.temp.join("own")), from);
  await assert.rejects(outcomes(bundle, work, take), new RegExp(`${BUILT} is not whole`));
});

const image = (...refs: string[]): BundleImage => ({ id: "0123456789abcdef", refs } as BundleImage);

test("pushedName() keeps names of other registries apart, and built images by their bytes", () => {
  const rows: [string[], string][] = [
    [["debian:12", PIN], "r.site/gym/library/debian:12"],
    [[PIN], "r.site/gym/library/debian:0123456789abcdef"],
    [["ghcr.io/org/tool:v1"], "r.site/gym/ghcr.io/org/tool:v1"],
    [["127.0.0.1:5000/a/b:1"], "r.site/gym/127.0.0.1-5000/a/b:1"],
    [[BUILT], `r.site/gym/${BUILT}:0123456789abcdef`],
  ];
  for (const [refs, name] of rows) assert.equal(pushedName(image(...refs), "r.site/gym"), name);
});

test("registryPlace() takes a host with or without a path, and refuses a bare word", () => {
  assert.equal(registryPlace("https://r.site:5000/gym/"), "r.site:5000/gym");
  assert.equal(registryPlace("localhost"), "localhost");
  assert.throws(() => registryPlace("gym"), /'gym' is not a host/);
  assert.throws(() => registryPlace("r.site/UPPER"), /UPPER/);
});
