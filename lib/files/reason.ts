/** What a file operation failed of, in words a person knows and without the path: the message around it has that. */
import { errno, messageOf } from "../errors.ts";

const WORDS: Record<string, string> = {
  EACCES: "permission denied",
  EPERM: "permission denied",
  ENOENT: "it is not there",
  EISDIR: "it is a folder, must be a file",
  ENOTDIR: "a part of its path is a file, must be a folder",
  ELOOP: "its links go round in a circle",
  ENAMETOOLONG: "the name is too long",
  EAGAIN: "it is not a regular file",
  ENXIO: "it is not a regular file",
  ENOSPC: "no space left on the disk",
  EDQUOT: "the disk quota is used up",
  EROFS: "the file system is read-only",
  EIO: "the disk reports an error (EIO)",
};

/** The words for a Node error; the message of any other. */
export function reasonOf(cause: unknown): string {
  const code = errno(cause);
  return (code === undefined ? undefined : WORDS[code]) ?? messageOf(cause);
}
