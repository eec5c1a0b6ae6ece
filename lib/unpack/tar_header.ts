/**
 * One 512-byte header of a tar archive, read and written. Names are byte strings: one character per byte (latin1), so
 * that names which are not UTF-8 pass as they are. Formats: POSIX ustar, GNU (long names, base-256 numbers), pax records.
 */
import { Buffer } from "node:buffer";

export const BLOCK = 512;

export interface TarHeader {
  /** Byte string. */
  name: string;
  /** One character: "0" file, "1" hard link, "2" symbolic link, "3" character, "4" block device, "5" folder, "6" FIFO. */
  type: string;
  mode: number;
  uid: number;
  gid: number;
  /** Bytes of content that follow. */
  size: number;
  /** Seconds since 1970, with a fraction where the archive has one. */
  mtime: number;
  /** Byte string; target of a link. */
  linkname: string;
  /** Extended attributes by name; values are byte strings. */
  xattrs: Readonly<Record<string, string>>;
}

/** Reads a header block; undefined for the zero block that ends an archive. Throws Error for a bad checksum. */
export function parseHeader(block: Buffer): TarHeader | undefined {
  const stated = octal(block, 148, 8);
  const sum = sumOf(block);
  if (sum === 256 && stated === 0) return undefined;
  if (sum !== stated) throw new Error("a header has a wrong checksum");
  const name = text(block, 0, 100);
  const prefix = block[345] !== 0 && isUstar(block) ? text(block, 345, 155) : "";
  const type = String.fromCharCode(block[156]!);
  return {
    name: prefix === "" ? name : `${prefix}/${name}`,
    type: type === "\0" || type === "7" ? "0" : type,
    mode: number(block, 100, 8) & 0o7777,
    uid: number(block, 108, 8),
    gid: number(block, 116, 8),
    size: number(block, 124, 12),
    mtime: number(block, 136, 12),
    linkname: text(block, 157, 100),
    xattrs: NO_XATTRS,
  };
}

/** What all entries without attributes share. */
const NO_XATTRS: Readonly<Record<string, string>> = {};

/** Of all bytes, with blanks in place of the eight of the checksum itself. */
function sumOf(block: Buffer): number {
  let sum = 256;
  for (let at = 0; at < BLOCK; at++) {
    const byte = block[at]!;
    if (byte !== 0) sum += byte; // most are
  }
  for (let at = 148; at < 156; at++) sum -= block[at]!;
  return sum;
}

/** POSIX's magic; GNU's has times where POSIX has the prefix of a name. */
const isUstar = (block: Buffer): boolean => block.toString("latin1", 257, 263) === "ustar\0";

function text(block: Buffer, at: number, length: number): string {
  let end = at;
  while (end < at + length && block[end] !== 0) end++;
  return end === at ? "" : block.toString("latin1", at, end);
}

/** Octal digits, or GNU's base-256 behind a set high bit. */
function number(block: Buffer, at: number, length: number): number {
  if ((block[at]! & 0x80) === 0) return octal(block, at, length);
  const negative = block[at] === 0xff;
  let value = negative ? 0 : block[at]! & 0x7f;
  for (let index = at + 1; index < at + length; index++) {
    value = value * 256 + (negative ? 255 - block[index]! : block[index]!);
  }
  return negative ? -1 - value : value;
}

function octal(block: Buffer, at: number, length: number): number {
  let value = 0;
  let end = at + length;
  while (at < end && (block[at] === 0x20 || block[at] === 0)) at++;
  for (; at < end; at++) {
    const digit = block[at]! - 0x30;
    if (digit < 0 || digit > 7) end = at;
    else value = value * 8 + digit;
  }
  return value;
}

/** What a written header says; the rest is as for a file of root with mode 0644 of the year 1970. */
export type NewHeader = Partial<TarHeader> & { name: string };

/**
 * The blocks that begin an entry: pax records for extended attributes, GNU long-name records (which every tar reads,
 * BusyBox 1.35 no pax ones), then the header itself.
 */
export function headerBlocks(header: NewHeader): Buffer {
  const { name, type = "0", linkname = "", xattrs = {} } = header;
  const parts: Buffer[] = [];
  const records = Object.entries(xattrs).map(([key, value]) => paxRecord(`SCHILY.xattr.${key}`, value)).join("");
  if (records !== "") parts.push(...carried("x", "pax", records));
  if (linkname.length > 100) parts.push(...carried("K", LONG, `${linkname}\0`));
  if (name.length > 100) parts.push(...carried("L", LONG, `${name}\0`));
  parts.push(block({ ...header, type, name: name.slice(0, 100), linkname: linkname.slice(0, 100) }));
  return Buffer.concat(parts);
}

const LONG = "././@LongLink";

function carried(type: string, name: string, data: string): Buffer[] {
  const bytes = Buffer.from(data, "latin1");
  return [block({ name, type, size: bytes.length }), bytes, padding(bytes.length)];
}

/** `length key=value\n`, where the length counts itself. */
function paxRecord(key: string, value: string): string {
  const rest = ` ${key}=${value}\n`;
  let length = rest.length + 1;
  while (String(length).length + rest.length !== length) length = String(length).length + rest.length;
  return `${length}${rest}`;
}

function block(
  { name, type = "0", mode = 0o644, uid = 0, gid = 0, size = 0, mtime = 0, linkname = "" }: NewHeader,
): Buffer {
  const out = Buffer.alloc(BLOCK);
  out.write(name, 0, 100, "latin1");
  put(out, mode & 0o7777, 100, 8);
  put(out, uid, 108, 8);
  put(out, gid, 116, 8);
  put(out, size, 124, 12);
  put(out, Math.max(0, Math.floor(mtime)), 136, 12);
  out.write(type, 156, "latin1");
  out.write(linkname, 157, 100, "latin1");
  out.write("ustar  \0", 257, "latin1"); // GNU's magic, since long names are GNU's
  if (type === "3" || type === "4") {
    put(out, 0, 329, 8);
    put(out, 0, 337, 8);
  }
  out.fill(0x20, 148, 156);
  const sum = out.reduce((total, byte) => total + byte, 0);
  out.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return out;
}

/** Octal where it fits, else base-256. */
function put(out: Buffer, value: number, at: number, length: number): void {
  const digits = value.toString(8);
  if (digits.length < length) return void out.write(digits.padStart(length - 1, "0"), at, "latin1");
  for (let index = at + length - 1, rest = value; index > at; index--, rest = Math.floor(rest / 256)) {
    out[index] = rest % 256;
  }
  out[at] = 0x80;
}

/** Zeros up to the next block. */
export const padding = (size: number): Buffer => Buffer.alloc((BLOCK - size % BLOCK) % BLOCK);

/** The two zero blocks that end an archive. */
export const END_OF_ARCHIVE: Buffer = Buffer.alloc(2 * BLOCK);
