/**
 * Copies of a task's files that others may read: links stay links, files become readable for everyone, since whoever
 * reads them in a sandbox may own none of them.
 */
import { chmod, constants, copyFile, mkdir, readlink, stat, symlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import { isFolder, type Kind, statKind, walkTree } from "./tree.ts";

export interface CopyOptions {
  /** Leaves out what it says yes to; asked with the path below `from`. */
  ignored?: (path: string, kind: Kind) => boolean;
  /** Everyone may write the copy as well. */
  writable?: boolean;
}

/** Copies a folder or a file to `to`, which must not exist. False when there is nothing to copy. */
export async function copyForAll(from: string, to: string, options: CopyOptions = {}): Promise<boolean> {
  const kind = isFolder(from) ? "dir" : statKind(from);
  if (kind === undefined) return false;
  const { ignored = () => false, writable = false } = options;
  const makeFolder = async (path: string) => {
    await mkdir(path, { recursive: true, mode: 0o755 });
    await chmod(path, writable ? 0o777 : 0o755); // whatever the umask is
  };
  const copyOne = async (path: string, kind: Kind) => {
    const [source, copy] = [join(from, path), join(to, path)];
    if (kind === "dir") await makeFolder(copy);
    else if (kind === "link") await symlink(await readlink(source), copy);
    else if (kind === "file") await copyReadable(source, copy, writable ? 0o666 : 0o644);
  };
  if (kind !== "dir") {
    await mkdir(dirname(to), { recursive: true, mode: 0o755 });
    await copyOne("", kind);
    return true;
  }
  await makeFolder(to);
  const work: [path: string, kind: Kind][] = [];
  walkTree(from, ({ path, kind }) => {
    if (ignored(path, kind)) return false;
    work.push([path, kind]);
  });
  for (const [path, kind] of work) await copyOne(path, kind);
  return true;
}

async function copyReadable(source: string, copy: string, mode: number): Promise<void> {
  await copyFile(source, copy, constants.COPYFILE_FICLONE);
  const own = (await stat(source)).mode;
  await chmod(copy, (own & 0o777) | mode | (own & 0o100 ? 0o111 : 0));
}
