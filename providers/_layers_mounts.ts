/**
 * Places for further mounts on an image's layers, made before anything is mounted. What a path means is found out in the
 * unpacked trees, with each image's links resolved within it: no mount is ever led out of the sandbox by a link.
 */
import {
  chmodSync,
  lchownSync,
  lstatSync,
  mkdirSync,
  readlinkSync,
  type Stats,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { HarborError } from "../lib/errors.ts";
import { fstabLine } from "./_namespace_mounts.ts";

export type MemberMount =
  /** A file or folder of this machine. */
  | { kind: "bind"; source: string; target: string; readOnly: boolean }
  | { kind: "tmpfs"; target: string; options: string };

const MAX_LINKS = 40;

/** Makes the places in the upper folder and returns the lines of fstab. Throws "sandbox.failed" for one that cannot be. */
export function placeMounts(
  mounts: readonly MemberMount[],
  trees: readonly string[],
  upper: string,
  root: string,
): string[] {
  const lookIn = [upper, ...trees];
  return mounts.map((mount) => {
    const isFolder = mount.kind === "tmpfs" || statSync(mount.source).isDirectory();
    const path = resolveInTrees(lookIn, mount.target);
    makePlace(lookIn, upper, path, isFolder);
    return mount.kind === "tmpfs"
      ? fstabLine("tmpfs", root + path, "tmpfs", ["nosuid", "nodev", mount.options].filter(Boolean).join(","))
      : fstabLine(mount.source, root + path, "none", `bind,nodev,nosuid${mount.readOnly ? ",ro" : ""}`);
  });
}

/** What stands at a path in the topmost tree that has it; a whiteout (character device) hides what is below. */
function lookUp(trees: readonly string[], path: string): { stat: Stats; at: string } | undefined {
  for (const tree of trees) {
    const at = join(tree, path);
    const stat = lstatSync(at, { throwIfNoEntry: false });
    if (stat !== undefined) return stat.isCharacterDevice() ? undefined : { stat, at };
  }
  return undefined;
}

/** The path with the links of the image resolved; what is not there stays as it is named. */
export function resolveInTrees(trees: readonly string[], path: string): string {
  const names: string[] = [];
  let todo = path.split("/");
  for (let followed = 0; todo.length > 0;) {
    const name = todo.shift()!;
    if (name === "" || name === ".") continue;
    if (name === "..") {
      names.pop();
      continue;
    }
    const found = lookUp(trees, [...names, name].join("/"));
    if (found?.stat.isSymbolicLink() !== true) {
      names.push(name);
      continue;
    }
    if (++followed > MAX_LINKS) throw new HarborError("sandbox.failed", `Cannot mount at ${path}: too many links`);
    const target = readlinkSync(found.at);
    if (target.startsWith("/")) names.length = 0;
    todo = [...target.split("/"), ...todo];
  }
  return `/${names.join("/")}`;
}

function makePlace(trees: readonly string[], upper: string, path: string, isFolder: boolean): void {
  const found = lookUp(trees, path);
  if (found !== undefined && found.stat.isDirectory() === isFolder) return;
  if (found !== undefined) {
    const [is, wanted] = isFolder ? ["a file", "a folder"] : ["a folder", "a file"];
    throw new HarborError("sandbox.failed", `Cannot mount ${wanted} at ${path}: the image has ${is} there`);
  }
  const names = path.split("/").slice(1);
  for (let at = 1; at < names.length; at++) mirror(trees, upper, names.slice(0, at).join("/"));
  const place = join(upper, path);
  if (isFolder) mkdirSync(place, { mode: 0o755 });
  else writeFileSync(place, "", { mode: 0o644 });
}

/** A parent of a place: in the upper folder it must look as it does below, since the upper one is what is seen. */
function mirror(trees: readonly string[], upper: string, path: string): void {
  const place = join(upper, path);
  if (lstatSync(place, { throwIfNoEntry: false }) !== undefined) return;
  const below = lookUp(trees, path)?.stat;
  mkdirSync(place);
  chmodSync(place, below === undefined ? 0o755 : below.mode & 0o7777);
  if (below !== undefined && process.getuid?.() === 0) lchownSync(place, below.uid, below.gid);
}
