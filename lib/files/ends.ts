/** The first or last part of a file as text, whatever its size. No link is followed; only regular files are read. */
import { constants } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";

/** At most `bytes` from the beginning. Throws the Node error of a file that cannot be read. */
export const headOfFile = (path: string, bytes: number): Promise<string> => part(path, bytes, () => 0);

/** At most `bytes` from the end. Throws like headOfFile(). */
export const tailOfFile = (path: string, bytes: number): Promise<string> =>
  part(path, bytes, (size) => Math.max(0, size - bytes));

async function part(path: string, bytes: number, from: (size: number) => number): Promise<string> {
  const file: FileHandle = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const stat = await file.stat();
    if (!stat.isFile()) throw new Error(`${path} is not a regular file`);
    const wanted = Math.min(stat.size, bytes);
    const buffer = new Uint8Array(wanted);
    const { bytesRead } = await file.read(buffer, 0, wanted, from(stat.size));
    return new TextDecoder().decode(buffer.subarray(0, bytesRead));
  } finally {
    await file.close();
  }
}
