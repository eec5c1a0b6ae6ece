import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { chmodSync, mkdirSync } from "node:fs";
import { test } from "node:test";
import { contextHash, inputsDigest } from "../../../lib/digest/context.ts";
import { TempFolder, writeFiles } from "../../support/tasks.ts";

test("contextHash() names a folder without files by its image, or its own name", () => {
  using temp = new TempFolder();
  mkdirSync(temp.join("environment"));
  assert.equal(contextHash(temp.join("environment")), "ba5285161ba6eed0085fb13784ce5c92");
  assert.equal(contextHash(temp.join("environment") + "/"), "ba5285161ba6eed0085fb13784ce5c92");
  assert.equal(
    contextHash(temp.join("environment"), { dockerImage: "org/img:1" }),
    "ce84fa238c68e63d39420da746f1ab51",
  );
  assert.equal(contextHash(temp.join("environment"), { dockerImage: "" }), "ba5285161ba6eed0085fb13784ce5c92");
  writeFiles(temp.join("environment"), { ".DS_Store": "x", "l": { symlink: "/etc/passwd" } });
  assert.equal(contextHash(temp.join("environment")), "ba5285161ba6eed0085fb13784ce5c92");
});

test("contextHash() widens all lengths when one file is too long for 32 bits", () => {
  using temp = new TempFolder();
  writeFiles(temp.path, { a: "12345", b: "1" });
  const u32 = (value: number) => new Uint8Array(new Uint32Array([value]).buffer).reverse();
  const u64 = (value: number) => new Uint8Array(new BigUint64Array([BigInt(value)]).buffer).reverse();
  const narrow = createHash("sha256").update(u32(1)).update("a").update(u32(5)).update("12345")
    .update(u32(1)).update("b").update(u32(1)).update("1").digest("hex");
  const wide = createHash("sha256").update(new Uint8Array([1])).update(u32(1)).update("a").update(u64(5)).update(
    "12345",
  )
    .update(u32(1)).update("b").update(u64(1)).update("1").digest("hex");
  assert.equal(contextHash(temp.path), narrow.slice(0, 32));
  assert.equal(contextHash(temp.path, { wideFrom: 6 }), narrow.slice(0, 32));
  assert.equal(contextHash(temp.path, { wideFrom: 5 }), wide.slice(0, 32));
});

test("inputsDigest() tells apart what contextHash() does not", () => {
  using temp = new TempFolder();
  const files = { Dockerfile: "FROM x", "run.sh": "1", l: { symlink: "run.sh" } };
  const at = (name: string, more: Parameters<typeof writeFiles>[1] = {}) => {
    writeFiles(temp.join(name), { ...files, ...more });
    return temp.join(name);
  };
  const plain = inputsDigest(at("a"));
  assert.equal(inputsDigest(at("b")), plain);
  chmodSync(at("c") + "/run.sh", 0o755);
  const others = [
    inputsDigest(temp.join("c")),
    inputsDigest(at("d", { l: { symlink: "Dockerfile" } })),
    inputsDigest(at("e", { empty: { dir: 1 } })),
    inputsDigest(at("f"), { target: "base" }),
    inputsDigest(at("g"), { build_args: { A: "1" } }),
    inputsDigest(at("h", { "run.sh": "2" })),
  ];
  assert.equal(new Set([plain, ...others]).size, 7);
  assert.equal(
    inputsDigest(at("i"), { build_args: { B: "2", A: "1" } }),
    inputsDigest(at("j"), { build_args: { A: "1", B: "2" } }),
  );
  for (const name of ["c", "d", "e"]) assert.equal(contextHash(temp.join(name)), contextHash(temp.join("a")));
});
