/** Tar archives written entry by entry, hostile ones too. */
import { Buffer } from "node:buffer";
import { END_OF_ARCHIVE, headerBlocks, type NewHeader, padding } from "../../lib/unpack/tar_header.ts";

export type TarEntry = NewHeader & { data?: string | Uint8Array };

const TYPES = { file: "0", hardlink: "1", symlink: "2", device: "3", folder: "5", fifo: "6" } as const;

/** `[kind, name, content or target, more]`. */
export type Line = [kind: keyof typeof TYPES, name: string, content?: string | Uint8Array, more?: Partial<NewHeader>];

export function tar(...lines: Line[]): Uint8Array {
  return new Uint8Array(Buffer.concat([...lines.map(entryBytes), END_OF_ARCHIVE]));
}

function entryBytes([kind, name, content = "", more]: Line): Buffer {
  const header: NewHeader = { name, type: TYPES[kind], mode: kind === "folder" ? 0o755 : 0o644, ...more };
  if (kind !== "file") return headerBlocks({ ...header, linkname: typeof content === "string" ? content : "" });
  const data = Buffer.from(typeof content === "string" ? new TextEncoder().encode(content) : content);
  return Buffer.concat([headerBlocks({ ...header, size: data.length }), data, padding(data.length)]);
}
