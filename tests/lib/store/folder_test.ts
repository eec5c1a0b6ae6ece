import assert from "node:assert/strict";
import { chmodSync, mkdirSync, statSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { thisUid } from "../../../lib/runtime/user.ts";
import { storeFolder } from "../../../lib/store/folder.ts";
import { TempFolder } from "../../support/tasks.ts";

test("storeFolder() prefers the option, then XDG_CACHE_HOME, then HOME, then a private folder below TMPDIR", () => {
  using temp = new TempFolder("folder");
  const env = { XDG_CACHE_HOME: temp.join("xdg"), HOME: temp.join("home"), TMPDIR: temp.path };
  const fallback = join(temp.path, `gym-harbor-${thisUid()}`, "images");
  assert.equal(storeFolder(env, "/some/where"), "/some/where");
  assert.equal(storeFolder(env), temp.join("xdg/gym-harbor/images"));
  assert.equal(storeFolder({ ...env, XDG_CACHE_HOME: "" }), temp.join("home/.cache/gym-harbor/images"));
  assert.equal(storeFolder({ ...env, XDG_CACHE_HOME: "relative" }), temp.join("home/.cache/gym-harbor/images"));
  assert.equal(storeFolder({ TMPDIR: temp.path }), fallback);
  assert.equal(storeFolder({ TMPDIR: temp.path, HOME: "/proc/nowhere" }), fallback, "a HOME that cannot hold anything");
  assert.equal(statSync(join(fallback, "..")).mode & 0o777, 0o700);
});

test("a folder below TMPDIR that is not ours alone is refused", () => {
  using temp = new TempFolder("folder");
  const root = join(temp.path, `gym-harbor-${thisUid()}`);
  symlinkSync("/tmp", root);
  assert.throws(() => storeFolder({ TMPDIR: temp.path }), /not a folder of ours alone/);
  using other = new TempFolder("folder");
  const open = join(other.path, `gym-harbor-${thisUid()}`);
  mkdirSync(open);
  chmodSync(open, 0o777);
  assert.throws(() => storeFolder({ TMPDIR: other.path }), /not a folder of ours alone/);
});
