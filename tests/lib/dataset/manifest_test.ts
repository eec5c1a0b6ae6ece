import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, readFileSync, statSync } from "node:fs";
import process from "node:process";
import { test } from "node:test";
import { parse } from "smol-toml";
import { type DatasetFacts, type Manifest, manifestText, reconcileManifest } from "../../../lib/dataset/manifest.ts";
import { HarborError } from "../../../lib/errors.ts";
import { type Runner, systemRunner } from "../../../lib/runtime/runner.ts";
import { needing } from "../../support/kit.ts";
import { TempFolder, writeFiles } from "../../support/tasks.ts";

const noGit: Pick<Runner, "run"> = {
  run: () => Promise.reject(new HarborError("machine.lacks", "git is not there")),
};
const signal = new AbortController().signal;

const facts = (tasks: Record<string, string>, more: Partial<DatasetFacts> = {}): DatasetFacts => ({
  tasks: new Map(Object.entries(tasks)),
  digests: { dataset_digest: "d".repeat(64), dataset_toml_digest: "e".repeat(64) },
  complete: true,
  ...more,
});
const ONE = facts({ alpha: "a".repeat(64) });

/** A place that lies below no repository, whatever the tests are started in. */
const place = () => new TempFolder("manifest");

test("manifestText() has one order of keys and tasks, and quotes what TOML needs quoted", () => {
  const tasks = { "\u{1f600}": "3", "a.b": "1", "\uffee": "2", 'q"\\\x7f\n': "0" };
  const text = manifestText(facts(tasks));
  assert.equal(
    text,
    `[dataset]\nsource = "local"\ndigest = "${"d".repeat(64)}"\ndataset_toml_digest = "${"e".repeat(64)}"\n` +
      `\n[tasks."a.b"]\ndigest = "1"\n` +
      `\n[tasks."q\\"\\\\\\u007f\\n"]\ndigest = "0"\n` +
      `\n[tasks."\uffee"]\ndigest = "2"\n` +
      `\n[tasks."\u{1f600}"]\ndigest = "3"\n`,
  );
  const read = parse(text) as Manifest;
  for (const [id, digest] of Object.entries(tasks)) assert.equal(read.tasks[id]!.digest, digest);
});

test("manifestText() leaves the dataset's digest out while a task has none", () => {
  assert.equal(
    manifestText(facts({}, { complete: false, digests: { dataset_digest: "x" } })),
    '[dataset]\nsource = "local"\n',
  );
});

test("reconcileManifest() writes, keeps what is right, and rewrites what changed", async () => {
  using temp = place();
  const path = temp.join("manifest.toml");
  assert.deepEqual(await reconcileManifest(temp.path, ONE, { runner: noGit, signal }), { outcome: "written" });
  const first = statSync(path).mtimeMs;
  assert.equal(readFileSync(path, "utf8"), manifestText(ONE));
  assert.deepEqual(await reconcileManifest(temp.path, ONE, { runner: noGit, signal }), { outcome: "kept" });
  assert.equal(statSync(path).mtimeMs, first);
  const two = facts({ alpha: "b".repeat(64), beta: "c".repeat(64) });
  assert.deepEqual(await reconcileManifest(temp.path, two, { runner: noGit, signal }), { outcome: "written" });
  assert.equal(readFileSync(path, "utf8"), manifestText(two));
});

test("reconcileManifest() rewrites a manifest that cannot be read, and says so", async () => {
  for (const bad of ["[dataset", 'source = "local"\n', '[dataset]\nsource = "elsewhere"\n']) {
    using temp = place();
    writeFiles(temp.path, { "manifest.toml": bad });
    const { outcome, note } = await reconcileManifest(temp.path, ONE, { runner: noGit, signal });
    assert.equal(outcome, "written");
    assert.match(note!, /manifest\.toml is unreadable and will be rewritten$/);
    assert.equal(readFileSync(temp.join("manifest.toml"), "utf8"), manifestText(ONE));
  }
});

const lacksGit = spawnSync("git", ["--version"]).status === 0 ? null : "no git here";

needing(lacksGit, "reconcileManifest() leaves a folder that git tracks alone", async () => {
  using temp = place();
  writeFiles(temp.path, { "tracked/f": "1", "ignored/f": "1", "new/f": "1", ".gitignore": "ignored\n" });
  const git = (...args: string[]) =>
    assert.equal(spawnSync("git", ["-C", temp.path, ...args]).status, 0, args.join(" "));
  git("init", "-q");
  git("add", "tracked");
  const deps = { runner: systemRunner(), signal };
  assert.equal((await reconcileManifest(temp.join("tracked"), ONE, deps)).outcome, "tracked");
  assert.equal((await reconcileManifest(temp.join("ignored"), ONE, deps)).outcome, "written");
  assert.equal((await reconcileManifest(temp.join("new"), ONE, deps)).outcome, "written");
  assert.equal(existsSync(temp.join("tracked/manifest.toml")), false);
});

test("reconcileManifest() takes a repository above for tracking the folder when there is no git program", async () => {
  using temp = place();
  writeFiles(temp.path, { ".git": "gitdir: elsewhere", "set/a/task.toml": "" });
  const { outcome } = await reconcileManifest(temp.join("set"), ONE, { runner: noGit, signal });
  assert.equal(outcome, "tracked");
});

test("reconcileManifest() only notes a folder that takes no file", async () => {
  using temp = place();
  const folder = temp.join("set");
  mkdirSync(folder);
  if (process.getuid?.() === 0) mkdirSync(temp.join("set/manifest.toml/taken"), { recursive: true });
  else chmodSync(folder, 0o555);
  const { outcome, note } = await reconcileManifest(folder, ONE, { runner: noGit, signal });
  chmodSync(folder, 0o755);
  assert.equal(outcome, "unwritable");
  assert.match(note!, /manifest\.toml is not written: /);
});

const FETCHED = `[dataset]
source = "harbor-package-store"
ref = "harbor:org/set@1"
digest = "${"d".repeat(64)}"
dataset_toml_digest = "${"e".repeat(64)}"

[tasks."alpha"]
digest = "${"a".repeat(64)}"
package = "org/alpha"
content_hash = "sha256:00"
`;

test("reconcileManifest() checks a fetched folder and never writes there", async () => {
  using temp = place();
  writeFiles(temp.path, { "manifest.toml": FETCHED });
  const deps = { runner: noGit, signal };
  assert.deepEqual(await reconcileManifest(temp.path, ONE, deps), { outcome: "kept" });
  for (
    const [now, wrong] of [
      [facts({ alpha: "0".repeat(64) }), "alpha (changed)"],
      [facts({}), "alpha (missing)"],
      [facts({ alpha: "a".repeat(64), beta: "b" }), "beta (not of it)"],
      [facts({ alpha: "a".repeat(64) }, { digests: { dataset_digest: "" } }), "dataset_toml"],
    ] as const
  ) {
    await assert.rejects(reconcileManifest(temp.path, now, deps), (error: HarborError) => {
      assert.equal(error.code, "task.invalid");
      assert.ok(error.message.endsWith(`is no longer what was fetched: ${wrong}`), error.message);
      assert.match(error.hint!, /harbor:org\/set@1/);
      return true;
    });
  }
  assert.equal(readFileSync(temp.join("manifest.toml"), "utf8"), FETCHED);
});

test("reconcileManifest() takes the claim of an unfinished fetch, which has no digests yet", async () => {
  using temp = place();
  const claim = '[dataset]\nsource = "harbor-registry"\nref = "harbor:set@1"\n\n[tasks."alpha"]\npath = "t/alpha"\n';
  writeFiles(temp.path, { "manifest.toml": claim });
  assert.deepEqual(await reconcileManifest(temp.path, ONE, { runner: noGit, signal }), { outcome: "kept" });
});

test("reconcileManifest() refuses a dataset folder inside a fetched one", async () => {
  using temp = place();
  writeFiles(temp.path, { "manifest.toml": FETCHED, "part/a/task.toml": "" });
  await assert.rejects(
    reconcileManifest(temp.join("part"), ONE, { runner: noGit, signal }),
    /part lies inside the fetched dataset /,
  );
});
