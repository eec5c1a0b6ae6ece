import process from "node:process";

/** Runs `work` with no mode bits withheld; synchronous, since the mask belongs to the whole process. */
export function unmasked(work: () => void): void {
  const mask = process.umask(0);
  try {
    work();
  } finally {
    process.umask(mask);
  }
}
