/** Whole files that survive a crash: a reader never sees half of one. */
import { open, rename, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";

/**
 * Replaces `path` in one step: readers see the old bytes or the new ones, never half. The folder must exist. Throws
 * the Node error of the step that failed and leaves the old file and no temporary one.
 */
export async function writeAtomic(path: string, data: string | Uint8Array): Promise<void> {
  const temp = join(dirname(path), `.${basename(path).slice(0, 40)}.${crypto.randomUUID()}.tmp`); // same disk, or rename fails
  try {
    const file = await open(temp, "wx", 0o644);
    await file.writeFile(data).then(() => file.sync()).finally(() => file.close());
    await rename(temp, path);
  } catch (error) {
    await rm(temp, { force: true });
    throw error;
  }
}
