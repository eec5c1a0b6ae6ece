import assert from "node:assert/strict";
import { statfsSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { networkFileSystem, spaceAt } from "../../../lib/files/disk.ts";

test("networkFileSystem() names the file systems of clusters, also where the number reads as negative", () => {
  for (
    const [type, name] of [[0x6969, "NFS"], [0x0bd00bd0, "Lustre"], [0x47504653, "GPFS"], [
      0xff534d42 | 0,
      "CIFS",
    ]] as const
  ) {
    assert.equal(networkFileSystem(type), name);
  }
  assert.equal(networkFileSystem(0xef53), undefined); // ext4
});

test("spaceAt() looks at the nearest folder that is there", () => {
  const here = spaceAt(tmpdir())!;
  const { bavail, bsize } = statfsSync(tmpdir());
  assert.ok(Math.abs(here.freeBytes - bavail * bsize) < 2 ** 30);
  assert.equal(spaceAt(join(tmpdir(), "not", "there"))?.network, here.network);
  assert.ok(spaceAt(join(tmpdir(), "not", "there"))!.freeBytes > 0);
});
