/** Folders for tests, written from a table: a path maps to its text, a link, a folder, or bytes. */
import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { Buffer } from "node:buffer";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";

export type FileSpec = string | { symlink: string } | { dir: 1 } | { hex: string } | { text: string; mode: string };
export type Files = Record<string, FileSpec>;

export interface TempTree extends Disposable {
  /** Absolute path of the folder. */
  readonly path: string;
  /** Absolute path of something below it. */
  at(path: string): string;
}

/** Writes `files` in order into a fresh folder (named `name`, so that a test can tell a task's ID); gone with `using`. */
export function writeTree(files: Files = {}, name = "task"): TempTree {
  const temp = mkdtempSync(join(tmpdir(), "gym-harbor-test-"));
  const path = join(temp, name);
  mkdirSync(path, { recursive: true });
  for (const [file, spec] of Object.entries(files)) writeOne(join(path, file), spec);
  return {
    path,
    at: (inner) => join(path, inner),
    [Symbol.dispose]: () => rmSync(temp, { recursive: true, force: true }),
  };
}

function writeOne(path: string, spec: FileSpec): void {
  mkdirSync(dirname(path), { recursive: true });
  if (typeof spec === "string") writeFileSync(path, spec);
  else if ("symlink" in spec) symlinkSync(spec.symlink, path);
  else if ("dir" in spec) mkdirSync(path, { recursive: true });
  else if ("hex" in spec) writeFileSync(path, Buffer.from(spec.hex, "hex"));
  else {
    writeFileSync(path, spec.text);
    chmodSync(path, parseInt(spec.mode, 8));
  }
}
