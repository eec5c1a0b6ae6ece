import assert from "node:assert/strict";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { HarborError } from "../../../lib/errors.ts";
import { thisOwner } from "../../../lib/sandbox/owner.ts";
import {
  isKept,
  LOCK_SUFFIX,
  makeScratch,
  markKept,
  removeScratch,
  scratchFolders,
  scratchRoot,
  sweepScratch,
} from "../../../lib/sandbox/scratch.ts";

const inTemp = (check: (env: { TMPDIR: string }) => void) => () => {
  const folder = mkdtempSync(join(tmpdir(), "scratch-"));
  try {
    check({ TMPDIR: folder });
  } finally {
    rmSync(folder, { recursive: true });
  }
};

test(
  "makeScratch() makes a folder that nobody else may enter and that names its owner",
  inTemp((env) => {
    const owner = thisOwner("abcd1234");
    const folder = makeScratch(env, owner);
    assert.equal(statSync(folder).mode & 0o777, 0o700);
    assert.deepEqual(scratchFolders(scratchRoot(env)), [{ folder, owner }]);
    removeScratch(folder);
    assert.equal(existsSync(folder), false);
  }),
);

test(
  "a run that left a sandbox on purpose is known by its folder",
  inTemp((env) => {
    const folder = makeScratch(env, thisOwner("abcd1234"));
    assert.equal(isKept(env, "abcd1234"), false);
    markKept(folder);
    assert.deepEqual([isKept(env, "abcd1234"), isKept(env, "other123")], [true, false]);
  }),
);

test(
  "removeScratch() takes the parent with the last run's folder",
  inTemp((env) => {
    const folders = ["aaaa1111", "bbbb2222"].map((run) => makeScratch(env, thisOwner(run)));
    removeScratch(folders[0]!);
    assert.equal(existsSync(scratchRoot(env)), true);
    removeScratch(folders[1]!);
    assert.equal(existsSync(scratchRoot(env)), false);
  }),
);

test(
  "makeScratch() refuses a parent that others may write to",
  inTemp((env) => {
    mkdirSync(scratchRoot(env));
    chmodSync(scratchRoot(env), 0o777);
    assert.throws(
      () => makeScratch(env, thisOwner("abcd1234")),
      (error) =>
        error instanceof HarborError && error.code === "machine.lacks" && /not a folder of ours/.test(error.message),
    );
  }),
);

test(
  "scratchFolders() leaves alone what names no owner, and an absent root is empty",
  inTemp((env) => {
    assert.deepEqual(scratchFolders(scratchRoot(env)), []);
    mkdirSync(join(scratchRoot(env), "foreign"), { recursive: true });
    assert.deepEqual(scratchFolders(scratchRoot(env)), []);
  }),
);

test(
  "sweepScratch() removes a run's folder that lost its owner, once nobody can be making it",
  inTemp((env) => {
    const root = scratchRoot(env);
    const mine = makeScratch(env, thisOwner("abcd1234"));
    for (const name of ["lost0000/host-1/trash-1", "foreign", "kept0000"]) {
      mkdirSync(join(root, name), { recursive: true });
    }
    markKept(join(root, "kept0000"));
    const at = (seconds: number) => ({ now: new Date(Date.now() + seconds * 1000) });
    assert.deepEqual(sweepScratch(root, at(5)).removed, []);
    assert.deepEqual(sweepScratch(root, { ...at(120), run: "other000" }).removed, []);
    assert.deepEqual(sweepScratch(root, at(120)).removed, [join(root, "lost0000")]);
    assert.deepEqual(readdirSync(root).sort(), ["abcd1234", "foreign", "kept0000"]);
    assert.ok(existsSync(mine));
  }),
);

test("scratchRoot() is absolute, also below a TMPDIR that is not", () => {
  assert.equal(scratchRoot({ TMPDIR: "some/where" }), join(process.cwd(), "some/where", basename(scratchRoot({}))));
});

test(
  "sweepScratch() removes the locks of dead holders, and the root with the last of them",
  inTemp((env) => {
    const root = scratchRoot(env);
    mkdirSync(root);
    const lock = (name: string, pid: number) => {
      const { host, start } = thisOwner("abcd1234");
      const holder = {
        token: name,
        host,
        pid,
        start: pid === process.pid ? start : "1",
        since: "2026-01-01T00:00:00Z",
      };
      writeFileSync(join(root, `${name}${LOCK_SUFFIX}`), JSON.stringify(holder));
    };
    lock("dead", 2 ** 22 + 1);
    lock("alive", process.pid);
    assert.deepEqual(sweepScratch(root, { now: new Date() }).failed, []);
    assert.deepEqual(readdirSync(root), [`alive${LOCK_SUFFIX}`]);
    lock("alive", 2 ** 22 + 1);
    sweepScratch(root, { now: new Date() });
    assert.equal(existsSync(root), false);
  }),
);
