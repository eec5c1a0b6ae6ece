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
  build: Record<BuildTool, readonly string[]>;
}

/** The programs of this machine's own root, which the sandbox shows. */
export function ownTools(programs: { setpriv: string; bash: string }): Tools {
  return {
    setpriv: [programs.setpriv],
    bash: [programs.bash],
    env: ["/usr/bin/env"],
    cat: ["cat"],
    sleep: ["sleep"],
    build: { cp: ["cp"], mkdir: ["mkdir"], rm: ["rm"], chown: ["chown"], chmod: ["chmod"] },
  };
}

const CARRIED = [
  "setpriv",
  "bash",
  "env",
  "cat",
  "sleep",
  "chroot",
  "umount",
  "cp",
  "mkdir",
  "rm",
  "chown",
  "chmod",
] as const;

/** Programs of ours for building, which an image may lack. */
export type BuildTool = "cp" | "mkdir" | "rm" | "chown" | "chmod";

export type CarriedTools = Tools & Record<"chroot" | "umount", readonly string[]>;

export interface CarriedFolder {
  /** Absolute, on this machine. */
  folder: string;
  /** The programs by where the folder will be seen. */
  at(mountPoint: string): CarriedTools;
}

export interface Linked {
  /** Path of the loader; undefined for a program that needs none. */
  loader: string | undefined;
  /** Name → where it lies here. */
  libraries: Map<string, string>;
}

/** What `ldd PROGRAM PROGRAM…` says of each, by the program's path. Pure. */
export function parseLdd(text: string): Map<string, Linked> {
  const found = new Map<string, Linked>();
  let linked: Linked | undefined;
  for (const line of text.split("\n")) {
    const program = /^(\/.*):$/.exec(line)?.[1];
    if (program !== undefined) {
      linked = { loader: undefined, libraries: new Map() };
      found.set(program, linked);
      continue;
    }
    if (linked === undefined) continue;
    const [, name, path] = /^\s+(\S+) => (\/\S+)/.exec(line) ?? [];
    if (name !== undefined && path !== undefined) {
      linked.libraries.set(basename(name), path);
      // musl's loader is the C library as well.
      if (/^ld-(linux|musl)/.test(basename(name))) linked.loader = path;
      continue;
    }
    const alone = /^\s+(\/\S+)/.exec(line)?.[1];
    if (alone !== undefined) linked.loader = alone;
  }
  return found;
}

/** Copies the programs into `folder`, which must not exist. Throws "machine.lacks" for a program that is not here. */
export async function carryTools(folder: string, runner: Runner): Promise<CarriedFolder> {
  mkdirSync(folder, { recursive: true });
  chmodSync(folder, 0o755);
  const programs = CARRIED.map((name) => ({ name, path: findProgram(name) }));
  const missing = programs.find(({ path }) => path === undefined);
  if (missing !== undefined) {
    throw new HarborError("machine.lacks", `The namespace sandbox needs ${missing.name} on this machine`, {
      hint: "install util-linux, bash and coreutils",
    });
  }
  const listed = await runner.run(["ldd", ...programs.map(({ path }) => path!)], {
    env: { PATH, LC_ALL: "C" },
    deadlineMs: 20_000,
  });
  const linked = parseLdd(listed.stdout);
  const loaders = new Map<string, string>();
  for (const { name, path } of programs) {
    carry(path!, join(folder, name));
    const { loader, libraries } = linked.get(path!) ?? { loader: undefined, libraries: new Map<string, string>() };
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
        build: {
          cp: words("cp"),
          mkdir: words("mkdir"),
          rm: words("rm"),
          chown: words("chown"),
          chmod: words("chmod"),
        },
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
