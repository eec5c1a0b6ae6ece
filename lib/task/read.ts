/** Reads the text files of a task: UTF-8 or a fault that says what is wrong, never a replaced character. */
import { Buffer } from "node:buffer";
import { FileReader } from "../digest/reader.ts";
import { errno, HarborError } from "../errors.ts";
import { reasonOf } from "../files/reason.ts";

export type TextResult = { ok: true; text: string } | {
  ok: false;
  fault: "missing" | "unreadable" | "encoding";
  detail: string;
};

const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/**
 * The whole text of a regular file; a byte order mark stays. The reader keeps the sum of its bytes, so that no hash
 * reads the file again.
 */
export function readTextFile(path: string, reader = new FileReader()): TextResult {
  let bytes: Uint8Array;
  try {
    bytes = readBytes(path, reader);
  } catch (error) {
    if (!(error instanceof HarborError)) throw error;
    const cause = errno(error.cause);
    if (cause === "ENOENT" || cause === "ENOTDIR") return { ok: false, fault: "missing", detail: "it is not there" };
    return { ok: false, fault: "unreadable", detail: reasonOf(error.cause ?? error.message.replace(/^.*?: /, "")) };
  }
  try {
    return { ok: true, text: UTF8.decode(bytes) };
  } catch {
    const offset = firstBadByte(bytes);
    const byte = bytes[offset]!.toString(16).padStart(2, "0");
    return { ok: false, fault: "encoding", detail: `is not UTF-8 (byte 0x${byte} at offset ${offset})` };
  }
}

/** The bytes of a file that fits the reader's buffer are its buffer: use them before the next read. */
function readBytes(path: string, reader: FileReader): Uint8Array {
  const chunks: Uint8Array[] = [];
  let seen = 0;
  let length = 0;
  reader.feed(path, {
    begin: (bytes) => void (length = bytes),
    bytes: (chunk) => {
      seen += chunk.length;
      chunks.push(seen < length || chunks.length > 0 ? chunk.slice() : chunk);
    },
  });
  return chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks);
}

function firstBadByte(bytes: Uint8Array): number {
  const lossy = new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
  return Math.min(bytes.length - 1, Buffer.byteLength(lossy.slice(0, Math.max(0, lossy.indexOf("\uFFFD")))));
}

/** Whether a script has CRLF line ends; false for what cannot be read. */
export function hasCrlf(path: string, reader = new FileReader()): boolean {
  try {
    return Buffer.from(readBytes(path, reader)).includes("\r\n");
  } catch (error) {
    if (error instanceof HarborError) return false;
    throw error;
  }
}
