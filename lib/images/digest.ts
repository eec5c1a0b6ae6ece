/** Digests as images, layouts and registries spell them. */
import { createHash } from "node:crypto";

/** `sha256:` and 64 hex digits. */
export const digestOf = (bytes: Uint8Array): string => `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
