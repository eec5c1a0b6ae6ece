import { test } from "node:test";
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fromRegistries } from "../../providers/_podman_digests.ts";

const digest = (letter: string) => `sha256:${letter.repeat(64)}`;

test("a digest that podman made for itself is no pin: its manifest lists layers by their uncompressed content", () => {
  const folder = mkdtempSync(join(tmpdir(), "gym-harbor-digests-"));
  const write = (name: string, content: unknown) =>
    writeFileSync(join(folder, `=${btoa(`manifest-${name}`)}`), JSON.stringify(content));
  try {
    const diffIds = [digest("1"), digest("2")];
    write(digest("a"), { layers: diffIds.map((one) => ({ digest: one, mediaType: "application/….diff.tar.gzip" })) });
    write(digest("b"), { layers: [{ digest: digest("1") }, { digest: digest("9") }] });
    write(digest("c"), { manifests: [{}] });
    write(digest("d"), ["not a manifest"]);
    const all = ["a", "b", "c", "d", "e"].map((letter) => `docker.io/library/x@${digest(letter)}`);
    assert.deepEqual(fromRegistries([...all, `r.test/y@${digest("b")}`], diffIds, folder), [
      `docker.io/library/x@${digest("b")}`,
      `docker.io/library/x@${digest("c")}`,
      `r.test/y@${digest("b")}`,
    ]);
    assert.deepEqual(fromRegistries(all, diffIds, "/no/such/folder"), []);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
