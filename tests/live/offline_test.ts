/**
 * The air gap: a dataset that was prepared where there is a network gives the same rewards and digests from its bundle
 * where there is none. `GYM_HARBOR_TEST_KILLS=40` kills exports and imports more often than the few of CI,
 * `GYM_HARBOR_TEST_SEED` repeats the moments of an earlier run.
 */
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { cpSync, existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { setTimeout as delay } from "node:timers/promises";
import { type CliResult, runCli, startCli } from "../support/cli.ts";
import { missing, needing, needsRoot, sandboxes, sandboxTest } from "../support/kit.ts";
import { identity, Site, treeText } from "../support/site.ts";
import { IMAGE, type RunFiles } from "../support/tasks.ts";

const KILLS = Number(process.env.GYM_HARBOR_TEST_KILLS ?? 3);
const needs = needsRoot() ?? missing("host");

const ok = (result: CliResult): CliResult => {
  assert.equal(result.code, 0, `${result.stdout}\n${result.stderr}`);
  return result;
};
/** One solution fails on purpose, so a good run ends with 1. */
const judged = (run: RunFiles): RunFiles => {
  assert.equal(run.code, 1, `${run.stdout}\n${run.stderr}`);
  assert.deepEqual(run.rows.map(({ reward }) => reward).sort(), run.rows.map((_, at) => (at === 0 ? 0 : 1)));
  return run;
};

/** A site whose images lie in our own store: no engine takes part. */
async function siteWithStore(): Promise<Site> {
  const site = new Site("site.example/base:1");
  await site.fillStore();
  return site;
}

const ours = (site: Site): string[] => ["--sandbox", "namespace", "--image-store", site.store, "--offline"];
const exportArgs = (site: Site, out: string): string[] => ["bundle", "export", site.data, "--out", out, ...ours(site)];

needing(
  needs,
  "a bundle gives the same rewards and digests without network, engine, home or a known user",
  async () => {
    using site = await siteWithStore();
    const here = judged(await site.validate(site.data, "here", ours(site)));
    ok(await runCli(exportArgs(site, site.join("bundle"))));
    const there = site.carry(site.join("bundle"));
    ok(await runCli(["bundle", "verify", there]));
    const run = judged(await site.validate(there, "there", ["--offline"], site.nowhere(there)));
    assert.deepEqual(identity(run), identity(here));
    for (const { sandbox } of run.rows) assert.match(sandbox.notes.join("\n"), /^users: one id only \(/m);
    for (const command of ["digest", "check"]) {
      const [inside, original] = await Promise.all([
        runCli([command, there, "--json"], site.nowhere(there)),
        runCli([command, site.data, "--json"]),
      ]);
      const lines = (text: string) => text.replaceAll(join(there, "dataset/words"), "D").replaceAll(site.data, "D");
      assert.equal(lines(ok(inside).stdout), lines(original.stdout));
    }
    assert.equal(treeText(there), treeText(site.join("bundle")), "nothing was written into it");
  },
);

needing(
  needs,
  "a bundle of some tasks carries the digest of the whole dataset; a task inside runs by its path",
  async () => {
    using site = await siteWithStore();
    const here = judged(await site.validate(site.data, "here", ours(site)));
    ok(await runCli([...exportArgs(site, site.join("bundle")), "--only-tasks", "pull,prebuilt"]));
    const there = site.carry(site.join("bundle"));
    const run = await site.validate(there, "there", ["--offline"], site.nowhere(there));
    assert.equal(run.code, 0, run.stderr);
    assert.equal(run.rows.length, 2);
    assert.equal(run.summary!.dataset.digest, here.summary!.dataset.digest);
    const single = await site.validate(
      join(there, "dataset/words/group/pull"),
      "one",
      ["--offline"],
      site.nowhere(there),
    );
    assert.equal(single.code, 0, single.stderr);
    assert.equal(
      single.rows[0]!._ng_digest,
      here.rows.find(({ _ng_task_id }) => _ng_task_id.task_id === "pull")!._ng_digest,
    );
  },
);

needing(needs, "what is built and baked without an engine is carried like any other image", async () => {
  using site = new Site("site.example/base:1", { builds: true });
  await site.fillStore();
  const building = ["--sandbox", "namespace", "--image-store", site.store, "++builds.tool=namespace"];
  ok(await runCli(["bundle", "export", site.data, "--out", site.join("bundle"), "--bake", ...building]));
  const there = site.carry(site.join("bundle"));
  const run = judged(await site.validate(there, "there", ["--offline"], site.nowhere(there)));
  const images = Object.fromEntries(run.rows.map((row) => [row._ng_task_id.task_id, row.image]));
  for (const baked of ["built", "overlay", "pull"]) assert.match(images[baked], /^hb__[0-9a-f]{32}$/, baked);
  assert.equal(images.prebuilt, "site.example/base:1");
});

needing(needs, "two exports are equal in every byte, mode and link", async () => {
  using site = await siteWithStore();
  for (const name of ["one", "two"]) ok(await runCli([...exportArgs(site, site.join(name)), "--with-binary"]));
  assert.equal(treeText(site.join("one")), treeText(site.join("two")));
  execFileSync("sha256sum", ["-c", "--strict", "--quiet", "SHA256SUMS"], { cwd: site.join("one") });
  assert.match(ok(await runCli(["--version"])).stdout, /./);
  assert.equal(spawnSync(site.join("one", "gym-harbor"), ["--version"]).status, 0);
});

needing(
  needs,
  "an image that a bundle lost stops a run before anything starts; a newer bundle says what reads it",
  async () => {
    using site = await siteWithStore();
    ok(await runCli(exportArgs(site, site.join("bundle"))));
    const there = site.carry(site.join("bundle"));
    const { images } = JSON.parse(readFileSync(join(there, "bundle.json"), "utf8"));
    const blob = join(there, "images/oci/blobs/sha256", images[0].manifest_digest.slice("sha256:".length));
    rmSync(blob);
    const run = await site.validate(there, "there", ["--offline"], site.nowhere(there));
    assert.equal(run.code, 2, run.stderr);
    assert.match(run.stderr, /^error\[image\.missing\]: Offline: \d+ image\(s\) are missing: .*site\.example\/base/m);
    assert.deepEqual(run.rows, []);
    const verified = await runCli(["bundle", "verify", there]);
    assert.equal(verified.code, 1);
    assert.match(
      verified.stdout,
      new RegExp(`^images/oci/blobs/sha256/${images[0].manifest_digest.slice(7)}: is missing`, "m"),
    );
    const index = readFileSync(join(there, "bundle.json"), "utf8");
    writeFileSync(join(there, "bundle.json"), index.replace('"schema_version": 1', '"schema_version": 7'));
    const newer = await site.validate(there, "newer", ["--offline"], site.nowhere(there));
    assert.match(newer.stderr, /has schema_version 7, this gym-harbor reads 1\nhint: use the gym-harbor that wrote/);
  },
);

needing(
  needs,
  `SIGKILL at ${KILLS} random moments of an export leaves half a bundle that says so, and the next one goes on`,
  async () => {
    using site = await siteWithStore();
    const whole = site.join("whole");
    const { ms } = ok(await runCli(exportArgs(site, whole)));
    const random = seeded();
    for (let kill = 0; kill < KILLS; kill++) {
      const out = site.join("out");
      rmSync(out, { recursive: true, force: true });
      const after = Math.round(random.next() * ms);
      const told = `seed ${random.seed}, kill ${kill} after ${after} ms`;
      const started = startCli(exportArgs(site, out));
      await delay(after);
      started.kill("SIGKILL");
      const { code } = await started.wait();
      if (code === null && existsSync(out)) {
        const verified = await runCli(["bundle", "verify", out]);
        const finished = verified.code === 0;
        if (!finished) assert.match(verified.stderr, /is half a bundle|is no bundle/, told);
      }
      ok(await runCli(exportArgs(site, out)));
      assert.equal(treeText(out), treeText(whole), told);
    }
  },
);

needing(
  needs,
  `SIGKILL at ${KILLS} random moments of an import into a store is made good by the next one`,
  async () => {
    using site = await siteWithStore();
    ok(await runCli(exportArgs(site, site.join("bundle"))));
    const importing = (store: string) => ["bundle", "import", site.join("bundle"), "--image-store", store];
    const { ms } = ok(await runCli(importing(site.join("first"))));
    const random = seeded();
    for (let kill = 0; kill < KILLS; kill++) {
      const store = site.join("imported");
      rmSync(store, { recursive: true, force: true });
      const after = Math.round(random.next() * ms);
      const started = startCli(importing(store));
      await delay(after);
      started.kill("SIGKILL");
      await started.wait();
      ok(await runCli(importing(store)));
      const blobs = (folder: string) => treeText(join(folder, "blobs"));
      assert.equal(blobs(store), blobs(site.join("first")), `seed ${random.seed}, kill ${kill} after ${after} ms`);
    }
  },
);

for (const engine of sandboxes(["docker", "podman"]) as ("docker" | "podman")[]) {
  sandboxTest(engine, "images of an engine, built ones too, are carried in a bundle and run on any side", async () => {
    if (needs !== null) return;
    const name = `site.example/${engine}-${crypto.randomUUID().slice(0, 8)}:1`;
    using site = new Site(name, { builds: true });
    const made: string[] = [name];
    const engineRun = (argv: string[], input?: string) => spawnSync(engine, argv, { encoding: "utf8", input });
    const forget = () => {
      for (const ref of made.toReversed()) engineRun(["rmi", "-f", ref]); // what was built before what it was built on
    };
    try {
      const base = engineRun(["build", "-t", name, "-"], `FROM ${IMAGE}\nLABEL site=${name}\n`);
      assert.equal(base.status, 0, base.stderr);
      const here = judged(await site.validate(site.data, "here", ["--sandbox", engine]));
      ok(await runCli(["bundle", "export", site.data, "--out", site.join("bundle"), "--sandbox", engine, "--offline"]));
      const index = JSON.parse(readFileSync(site.join("bundle", "bundle.json"), "utf8"));
      for (
        const { refs, alias, config_digest } of index.images.toSorted((
          { refs }: { refs: string[] },
        ) => (refs.includes(name) ? -1 : 1))
      ) {
        made.push(config_digest.slice("sha256:".length), alias, ...refs);
      }
      const there = site.carry(site.join("bundle"));
      const alone = judged(await site.validate(there, "alone", ["--offline"], site.nowhere(there)));
      assert.deepEqual(identity(alone), identity(here), "without an engine");

      forget();
      const before = await site.validate(there, "before", ["--offline", "--sandbox", engine]);
      assert.equal(before.code, 2, before.stderr);
      assert.match(before.stderr, /Offline: 2 image\(s\) are missing: .*; run gym-harbor bundle import/);
      ok(await runCli(["bundle", "import", there, "--sandbox", engine]));
      assert.match(ok(await runCli(["bundle", "import", there, "--sandbox", engine])).stderr, /is here already/);
      const after = judged(await site.validate(there, "after", ["--offline", "--sandbox", engine]));
      assert.deepEqual(identity(after), identity(here), "after an import");
      assert.equal(treeText(there), treeText(site.join("bundle")), "nothing was written into the bundle");
      const copy = site.join("copy");
      cpSync(join(there, "dataset/words"), copy, { recursive: true, verbatimSymlinks: true });
      const copied = judged(await site.validate(copy, "copy", ["--offline", "--sandbox", engine]));
      assert.equal(copied.rows.length, here.rows.length, "its dataset elsewhere finds the images by name");
    } finally {
      forget();
    }
  });
}

/** A small seeded generator, so that a failing moment can be repeated. */
function seeded(): { seed: number; next(): number } {
  const seed = Number(process.env.GYM_HARBOR_TEST_SEED ?? Math.floor(Math.random() * 1e9));
  let state = seed >>> 0;
  return {
    seed,
    next() {
      state = (state + 0x6d2b79f5) >>> 0;
      let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
      mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
      return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
    },
  };
}
