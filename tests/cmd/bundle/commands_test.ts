import assert from "node:assert/strict";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import * as importing from "../../../cmd/bundle/import.ts";
import * as push from "../../../cmd/bundle/push.ts";
import * as verify from "../../../cmd/bundle/verify.ts";
import type { CommandModule } from "../../../cmd/mod.ts";
import { BundleWork } from "../../support/bundles.ts";
import { testContext } from "../../support/context.ts";
import { testStore } from "../../support/images.ts";

const AMD64 = ["--platform", "linux/amd64"];

async function call<O>(
  command: CommandModule<O>,
  work: BundleWork,
  ...words: [Record<string, string>, ...string[]] | string[]
) {
  const [more, argv] = typeof words[0] === "object" ? [words[0], words.slice(1) as string[]] : [{}, words as string[]];
  const { ctx, out, notes } = testContext({ cwd: work.temp.path, env: { TMPDIR: work.temp.path, ...more } });
  const exit = await command.run(command.parse(argv), ctx).catch((error: Error) => error.message);
  return { exit, out, notes };
}

test("bundle verify says good in one line, or every fault and exit 1", async () => {
  using work = await BundleWork.make();
  await work.export("out");
  const good = await call(verify, work, "out", ...AMD64);
  assert.deepEqual(good, { exit: 0, out: ["out: good (tasks: 3, images: 2, files: 25)"], notes: [] });
  rmSync(work.temp.join("out/images/oci/oci-layout"));
  writeFileSync(work.temp.join("out/more"), "");
  const bad = await call(verify, work, "out", ...AMD64);
  assert.equal(bad.exit, 1);
  assert.deepEqual(bad.out, [
    "images/oci/oci-layout: is missing (carry it over again; if it is broken there too, export it again)",
    "more: is not of this bundle (remove it)",
    "out: 2 faults",
  ]);
  const json = await call(verify, work, "out", "--platform", "linux/arm64", "--json");
  assert.deepEqual(json.out.map((line) => JSON.parse(line).file), [
    "images/oci/oci-layout",
    "more",
    "bundle.json",
    undefined,
  ]);
  assert.equal(JSON.parse(json.out.at(-1)!).faults, 3);
});

test("bundle import into a store of ours needs no engine and writes nothing into the bundle", async () => {
  using work = await BundleWork.make();
  const bundle = await work.export("out");
  const done = await call(importing, work, "out", "--image-store", work.temp.join("own"), ...AMD64);
  assert.equal(done.exit, 0, done.notes.join("\n"));
  assert.deepEqual(done.out, bundle.images.map(({ alias, refs }) => `${alias}\t${refs.join(" ")}`));
  assert.ok(await testStore(work.temp.join("own")).find("debian:12", "linux/amd64"));
  assert.deepEqual(await work.faults("out"), []);
});

test("bundle import takes nothing of a bundle with a fault, and names it", async () => {
  using work = await BundleWork.make();
  await work.export("out");
  const path = join(work.temp.join("out"), "dataset/words/beta/tests/test.sh");
  writeFileSync(path, readFileSync(path, "utf8").replace("echo 1", "echo 0"));
  const done = await call(importing, work, "out", "--image-store", work.temp.join("own"), ...AMD64);
  assert.match(String(done.exit), /out is not taken over: 2 faults/);
  assert.match(done.out[0]!, /^dataset\/words\/beta\/tests\/test\.sh: /);
  assert.deepEqual(await testStore(work.temp.join("own")).list(), []);
});

test("bundle push asks no registry where GYM_HARBOR_OFFLINE is set", async () => {
  using work = await BundleWork.make();
  await work.export("out");
  const done = await call(push, work, { GYM_HARBOR_OFFLINE: "1" }, "out", "--registry", "127.0.0.1:1/x");
  assert.match(String(done.exit), /GYM_HARBOR_OFFLINE is set, and bundle push asks 127\.0\.0\.1:1\/x/);
});

test("bundle import --verify-only checks and takes nothing", async () => {
  using work = await BundleWork.make();
  await work.export("out");
  assert.deepEqual((await call(importing, work, "out", "--verify-only", ...AMD64)).out, ["out: good"]);
});

test("bundle import on a machine of another kind is refused, with what helps", async () => {
  using work = await BundleWork.make();
  await work.export("out");
  const done = await call(importing, work, "out", "--image-store", work.temp.join("own"), "--platform", "linux/arm64");
  assert.deepEqual(done.out, [
    "bundle.json: its images are for linux/amd64, not for linux/arm64 " +
    "(export it again with --platform linux/arm64, or use it on a machine of that kind)",
  ]);
  assert.match(String(done.exit), /out is not taken over: 1 fault$/);
});
