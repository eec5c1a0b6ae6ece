/** Trees to measure with, written by us so that a bench needs nothing outside the repository. */
import { closeSync, mkdirSync, mkdtempSync, openSync, rmSync, writeFileSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A folder that is gone at the end (`using`). */
export class BenchFolder implements Disposable {
  readonly path = mkdtempSync(join(tmpdir(), "gym-harbor-bench-"));

  [Symbol.dispose](): void {
    rmSync(this.path, { recursive: true, force: true });
  }
}

/** A trivial task: a prebuilt image, one line of solution and a test that compares. */
export function writeTask(folder: string, name: string, image = "debian:bookworm-slim"): void {
  for (const path of ["environment", "tests", "solution"]) mkdirSync(join(folder, path), { recursive: true });
  writeFileSync(
    join(folder, "task.toml"),
    `schema_version = "1.4"\n\n[task]\nname = "bench/${name}"\n\n[environment]\ndocker_image = "${image}"\n` +
      `cpus = 1\nmemory_mb = 512\n\n[agent]\ntimeout_sec = 60.0\n\n[verifier]\ntimeout_sec = 60.0\n`,
  );
  writeFileSync(join(folder, "instruction.md"), `Write the line ${name} to /tmp/answer.txt.\n`);
  writeFileSync(join(folder, "solution/solve.sh"), `#!/bin/bash\necho ${name} > /tmp/answer.txt\n`, { mode: 0o755 });
  writeFileSync(
    join(folder, "tests/test.sh"),
    `#!/bin/bash\nif [ "$(cat /tmp/answer.txt)" = ${name} ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n`,
    { mode: 0o755 },
  );
}

/** `count` files of `bytes` each, 100 to a folder, all different. Returns their paths. */
export function writeFiller(folder: string, count: number, bytes: number): string[] {
  const block = new Uint8Array(Math.min(bytes, 1 << 20));
  for (let i = 0, x = 2463534242; i < block.length; i++) {
    x ^= x << 13, x ^= x >>> 17, x ^= x << 5;
    block[i] = x & 255;
  }
  return Array.from({ length: count }, (_, index) => {
    const below = join(folder, String(Math.floor(index / 100)));
    if (index % 100 === 0) mkdirSync(below, { recursive: true });
    const path = join(below, `f${index}.bin`);
    new DataView(block.buffer).setUint32(0, index);
    const file = openSync(path, "w");
    for (let left = bytes; left > 0; left -= block.length) writeSync(file, block, 0, Math.min(left, block.length));
    closeSync(file);
    return path;
  });
}
