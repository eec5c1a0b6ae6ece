import assert from "node:assert/strict";
import { test } from "node:test";
import { LayeredStore } from "../../../lib/store/layered.ts";
import { bytesOf, makeImage, never, putImage, sourceOf, testStore } from "../../support/images.ts";
import { TempFolder } from "../../support/tasks.ts";

const CARRIED = makeImage([bytesOf("shared"), bytesOf("carried")]);
const OWN = makeImage([bytesOf("shared"), bytesOf("own")]);

async function stores(temp: TempFolder) {
  const carried = testStore(temp.join("carried"));
  const own = testStore(temp.join("own"));
  await putImage(carried, CARRIED, ["carried:1", "both:1"]);
  await putImage(own, OWN, ["own:1", "both:1"]);
  return { own, carried, both: new LayeredStore([testStore(carried.folder, true)], own) };
}

test("a layered store finds what any of its stores has, the first one's first", async () => {
  using temp = new TempFolder("layered");
  const { both } = await stores(temp);
  const digest = async (name: string) => (await both.find(name, "linux/amd64"))?.config.digest;
  assert.equal(await digest("carried:1"), CARRIED.config.digest);
  assert.equal(await digest("own:1"), OWN.config.digest);
  assert.equal(await digest("both:1"), CARRIED.config.digest);
  assert.equal(await digest("none:1"), undefined);
  assert.equal((await both.list()).length, 2);
});

test("a layered store reads a blob where it is", async () => {
  using temp = new TempFolder("layered");
  const { both, own, carried } = await stores(temp);
  assert.equal(both.blobPath(CARRIED.layers[1]!.digest), carried.blobPath(CARRIED.layers[1]!.digest));
  assert.equal(both.blobPath(OWN.layers[1]!.digest), own.blobPath(OWN.layers[1]!.digest));
  assert.deepEqual(new Uint8Array(both.readBlob(CARRIED.config.digest)), CARRIED.configBytes);
});

test("a layered store writes to its own, whole, whatever the others hold", async () => {
  using temp = new TempFolder("layered");
  const { both, own, carried } = await stores(temp);
  for (const { bytes, ...layer } of CARRIED.layers) await both.take(layer, sourceOf(bytes), never);
  await both.take(CARRIED.config, sourceOf(CARRIED.configBytes), never);
  await both.add(CARRIED, ["again:1"]);
  assert.equal((await own.find("again:1", "linux/amd64"))?.config.digest, CARRIED.config.digest);
  assert.equal(await carried.find("again:1", "linux/amd64"), undefined);
});
