/** What is said of blobs that are not what their name promises. */
import { rmSync } from "node:fs";
import { HarborError, isDiskFull } from "../errors.ts";
import { reasonOf } from "../files/reason.ts";

export interface BlobPlace {
  /** Absolute path of the blob. */
  path: string;
  readOnly: boolean;
}

/**
 * HarborError "image.failed" for a blob whose bytes have another digest or size. Where the store may be written it is
 * removed, so that the next pull fetches it again.
 */
export function damaged(digest: string, found: string, { path, readOnly }: BlobPlace): HarborError {
  return new HarborError("image.failed", `The blob ${digest} in ${path} is damaged: its bytes are ${found}`, {
    hint: readOnly || !removed(path)
      ? "it cannot be replaced here: copy that file again from where the store or bundle came from"
      : "it has been removed; fetch it again: gym-harbor images pull REFERENCE (a local image: images import)",
    details: { digest, found, path },
  });
}

function removed(path: string): boolean {
  try {
    rmSync(path, { force: true });
    return true;
  } catch {
    return false; // another user's store
  }
}

/** HarborError "image.failed" for a blob that an image names and that is not there. */
export function absentBlob(digest: string, path: string, cause?: unknown): HarborError {
  return new HarborError("image.failed", `The blob ${digest} is missing: there is no ${path}`, {
    hint: "fetch the image again: gym-harbor images pull REFERENCE; of a bundle, copy the folder again",
    details: { digest, path },
    cause,
  });
}

/** HarborError "image.failed" for a store that cannot be written; a full disk stays visible in `cause`. */
export function unwritableStore(doing: string, folder: string, cause: unknown): HarborError {
  if (cause instanceof HarborError) return cause;
  return new HarborError("image.failed", `${doing} in the image store ${folder}: ${reasonOf(cause)}`, {
    cause,
    hint: isDiskFull(cause)
      ? "free some space (gym-harbor images gc), or choose another disk with --image-store DIR"
      : "make the folder writable, or choose another one with --image-store DIR",
  });
}
