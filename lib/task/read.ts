/** Reads the text files of a task: UTF-8 or a fault that says what is wrong, never a replaced character. */
import { closeSync, constants, openSync, readFileSync, readSync } from "node:fs";
import { Buffer } from "node:buffer";
import { errno, messageOf } from "../errors.ts";

export type TextResult = { ok: true; text: string } | {
  ok: false;
  fault: "missing" | "unreadable" | "encoding";
  detail: string;
};

const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The whole text of a regular file; a byte order mark stays. */
export function readTextFile(path: string): TextResult {
  let bytes: Buffer;
  try {
    bytes = readRegular(path);
  } catch (cause) {
    if (errno(cause) === "ENOENT" || errno(cause) === "ENOTDIR") {
      return { ok: false, fault: "missing", detail: "it is not there" };
    }
    return { ok: false, fault: "unreadable", detail: reasonOf(cause) };
  }
  try {
    return { ok: true, text: UTF8.decode(bytes) };
  } catch {
    const offset = firstBadByte(bytes);
    const byte = bytes[offset]!.toString(16).padStart(2, "0");
    return { ok: false, fault: "encoding", detail: `is not UTF-8 (byte 0x${byte} at offset ${offset})` };
  }
}

/** O_NONBLOCK: a FIFO in a file's place must not hold us. */
function readRegular(path: string): Buffer {
  const file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    return readFileSync(file);
  } finally {
    closeSync(file);
  }
}

/** What went wrong in words a person knows, without the path (the message has it). */
export function reasonOf(cause: unknown): string {
  switch (errno(cause)) {
    case "EACCES":
    case "EPERM":
      return "permission denied";
    case "EISDIR":
      return "it is a folder, must be a file";
    case "ELOOP":
      return "its links go round in a circle";
    case "ENAMETOOLONG":
      return "the name is too long";
    case "EAGAIN":
    case "ENXIO":
      return "it is not a regular file";
    default:
      return messageOf(cause);
  }
}

function firstBadByte(bytes: Buffer): number {
  const before = bytes.toString("utf8").indexOf("\uFFFD");
  return Math.min(bytes.length - 1, Buffer.byteLength(bytes.toString("utf8").slice(0, Math.max(0, before))));
}

const HEAD_BYTES = 4096;
const head = Buffer.alloc(HEAD_BYTES);

/** Whether a script's first lines end in CRLF; false for what cannot be read. */
export function hasCrlf(path: string): boolean {
  let file: number;
  try {
    file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch {
    return false;
  }
  try {
    return head.subarray(0, readSync(file, head, 0, HEAD_BYTES, null)).includes("\r\n");
  } catch {
    return false;
  } finally {
    closeSync(file);
  }
}
