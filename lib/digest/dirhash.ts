/**
 * The directory checksum of Harbor's `result.json` (`task_checksum`): Dirhash Standard, SHA-256, with `.harborignore`
 * honoured since 0.25. Links are followed, every file counts wherever it lies, folders without files do not.
 */
import { realpathSync } from "node:fs";
import { HarborError } from "../errors.ts";
import { sortByCodePoint } from "../files/order.ts";
import { readFolder } from "../files/tree.ts";
import { sha256 } from "./canonical.ts";
import type { FileReader } from "./reader.ts";
import type { TaskTree } from "./tree.ts";

/** 64 hex digits. Throws HarborError "task.invalid" for a link that leads to a folder above it, or an unreadable file. */
export function dirhashOf(tree: TaskTree, reader: FileReader): string {
  return folderHash(tree, reader, "", []) ?? sha256("");
}

/** Undefined for a folder without any file. */
function folderHash(tree: TaskTree, reader: FileReader, folder: string, above: readonly string[]): string | undefined {
  const real = realpathSync(folder === "" ? tree.folder : tree.at(folder));
  if (above.includes(real)) {
    throw new HarborError("task.invalid", `Folders below ${folder} never end: a link leads back to a folder above it`, {
      hint: "remove the link",
    });
  }
  const inside = [...above, real];
  const descriptors: string[] = [];
  for (const { path, name, kind } of readFolder(tree.folder, folder)) {
    if (kind === "other" || tree.ignore().excludes(path, kind)) continue;
    const target = kind === "link" ? tree.target(path) : undefined;
    if (target !== undefined) tree.refuseEscape(path);
    if (kind === "file" || target?.isFile()) {
      descriptors.push(`data:${reader.sum(tree.at(path))}\0name:${name}`);
    } else if (kind === "dir" || target?.isDirectory()) {
      const below = folderHash(tree, reader, path, inside);
      if (below !== undefined) descriptors.push(`dirhash:${below}\0name:${name}`);
    }
  }
  return descriptors.length === 0 ? undefined : sha256(sortByCodePoint(descriptors).join("\0\0"));
}
