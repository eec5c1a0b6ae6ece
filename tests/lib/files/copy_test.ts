import assert from "node:assert/strict";
import { existsSync, readFileSync, readlinkSync, statSync } from "node:fs";
import { test } from "node:test";
import { copyForAll } from "../../../lib/files/copy.ts";
import { writeTree } from "../../support/tree.ts";

const mode = (path: string): string => (statSync(path).mode & 0o777).toString(8);

test("copyForAll() makes files readable and keeps links and the execute bit", async () => {
  using tree = writeTree({
    "from/run.sh": { text: "x", mode: "700" },
    "from/secret": { text: "y", mode: "600" },
    "from/sub/link": { symlink: "../secret" },
    "from/left/out": "z",
    "from/empty": { dir: 1 },
  });
  const ignored = (path: string) => path === "left";
  assert.equal(await copyForAll(tree.at("from"), tree.at("to"), { ignored }), true);
  assert.deepEqual([mode(tree.at("to/run.sh")), mode(tree.at("to/secret")), mode(tree.at("to/sub"))], [
    "755",
    "644",
    "755",
  ]);
  assert.equal(readlinkSync(tree.at("to/sub/link")), "../secret");
  assert.deepEqual([existsSync(tree.at("to/left")), existsSync(tree.at("to/empty"))], [false, true]);
});

test("copyForAll() copies one file, and everyone may write a writable copy", async () => {
  using tree = writeTree({ "from/seed.json": { text: "{}", mode: "600" } });
  await copyForAll(tree.at("from/seed.json"), tree.at("to/deep/seed.json"), { writable: true });
  assert.equal(readFileSync(tree.at("to/deep/seed.json"), "utf8"), "{}");
  assert.equal(mode(tree.at("to/deep/seed.json")), "666");
  await copyForAll(tree.at("from"), tree.at("folder"), { writable: true });
  assert.equal(mode(tree.at("folder")), "777");
});

test("copyForAll() says that there is nothing to copy", async () => {
  using tree = writeTree({});
  assert.equal(await copyForAll(tree.at("none"), tree.at("to")), false);
  assert.equal(existsSync(tree.at("to")), false);
});
