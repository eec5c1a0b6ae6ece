import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { download } from "../../providers/_namespace_files.ts";

const LIMITS = { maxEntries: 1000, maxBytes: 1_000_000 };

test("download() leaves out what has no room below our folder, and brings the rest", async () => {
  const base = mkdtempSync(join(tmpdir(), "files-"));
  try {
    const root = join(base, "root");
    const long = "d".repeat(200);
    mkdirSync(join(root, "logs", long, long), { recursive: true });
    writeFileSync(join(root, "logs", long, long, "file"), "x");
    symlinkSync("reward.txt", join(root, "logs", long + "link"));
    writeFileSync(join(root, "logs/reward.txt"), "1");
    let to = join(base, "to");
    while (to.length < 3900) to = join(to, "t".repeat(100));
    mkdirSync(to, { recursive: true });

    const report = await download(root, "/logs", to, LIMITS);

    assert.deepEqual(readdirSync(to), ["reward.txt"]);
    assert.equal(report.files, 1);
    assert.deepEqual(report.refused.map(({ path }) => path), [long, `${long}link`]);
    for (const { reason } of report.refused) assert.match(reason, /too long for this machine/);
  } finally {
    rmSync(base, { recursive: true });
  }
});
