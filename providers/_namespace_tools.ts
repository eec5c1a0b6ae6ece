/**
 * Programs of this machine that run inside a sandbox, where the sandbox's own must not or cannot be.
 *
 * On this machine's own root they are there. An image may have none of them, or of another C library, or planted ones:
 * copies of a handful of programs go into a folder with the loader and the libraries they need, and each is started
 * through that loader (`ld.so --library-path FOLDER FOLDER/bash`), so that nothing of the image takes part.
 */
import { chmodSync, copyFileSync, existsSync, mkdirSync } from "node:fs";
import { basename, join } from "node:path";
import { HarborError } from "../lib/errors.ts";
import type { Runner } from "../lib/runtime/runner.ts";
import { findProgram, PATH } from "./_namespace_machine.ts";

/** Words that start each program inside; more words may follow. */
export interface Tools {
  setpriv: readonly string[];
  bash: readonly string[];
  env: readonly string[];
  cat: readonly string[];
  sleep: readonly string[];
}

/** The programs of this machine's own root, which the sandbox shows. */
export function ownTools(programs: { setpriv: string; bash: string }): Tools {
  return {
    setpriv: [programs.setpriv],
    bash: [programs.bash],
    env: ["/usr/bin/env"],
    cat: ["cat"],
    sleep: ["sleep"],
  };
}

const CARRIED = ["setpriv", "bash", "env", "cat", "sleep", "chroot", "umount"] as const;

export type CarriedTools = Tools & Record<"chroot" | "umount", readonly string[]>;

export interface CarriedFolder {
  /** Absolute, on this machine. */
  folder: string;
  /** The programs by where the folder will be seen. */
  at(mountPoint: string): CarriedTools;
}

/** Names of the loader and of the libraries that `ldd` lists, with where they lie here. Pure. */
export function parseLdd(text: string): { loader: string | undefined; libraries: Map<string, string> } {
  const libraries = new Map<string, string>();
  let loader: string | undefined;
  for (const line of text.split("\n")) {
    const [, name, path] = /^\s*(\S+) => (\/\S+)/.exec(line) ?? [];
    if (name !== undefined && path !== undefined) {
      libraries.set(basename(name), path);
      // musl's loader is the C library as well, and some ldd list a loader like any library.
      if (/^ld-(linux|musl)/.test(basename(name))) loader = path;
      continue;
    }
    const [alone] = /^\s*(\/\S+)/.exec(line)?.slice(1) ?? [];
    if (alone !== undefined && !alone.includes(":")) loader = alone;
  }
  return { loader, libraries };
}

/** Copies the programs into `folder`, which must not exist. Throws "machine.lacks". */
export async function carryTools(folder: string, runner: Runner): Promise<CarriedFolder> {
  mkdirSync(folder, { recursive: true });
  chmodSync(folder, 0o755);
  const loaders = new Map<string, string>();
  for (const name of CARRIED) {
    const path = findProgram(name);
    if (path === undefined) {
      throw new HarborError("machine.lacks", `The namespace sandbox needs ${name} on this machine`, {
        hint: "install util-linux, bash and coreutils",
      });
    }
    carry(path, join(folder, name));
    const listed = await runner.run(["ldd", path], { env: { PATH, LC_ALL: "C" }, deadlineMs: 10_000 });
    if (listed.exitCode !== 0) continue; // a program that needs no loader
    const { loader, libraries } = parseLdd(listed.stdout);
    for (const [library, from] of libraries) carry(from, join(folder, library));
    if (loader === undefined) continue;
    carry(loader, join(folder, basename(loader)));
    loaders.set(name, basename(loader));
  }
  return {
    folder,
    at: (mountPoint) => {
      const words = (name: typeof CARRIED[number]): readonly string[] => {
        const loader = loaders.get(name);
        const program = join("/", mountPoint, name);
        return loader === undefined
          ? [program]
          : [join("/", mountPoint, loader), "--library-path", mountPoint || "/", program];
      };
      const tools: CarriedTools = {
        setpriv: words("setpriv"),
        bash: words("bash"),
        env: words("env"),
        cat: words("cat"),
        sleep: words("sleep"),
        chroot: words("chroot"),
        umount: words("umount"),
      };
      return tools;
    },
  };
}

function carry(from: string, to: string): void {
  if (existsSync(to)) return;
  copyFileSync(from, to);
  chmodSync(to, 0o755);
}
