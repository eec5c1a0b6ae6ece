/**
 * Reads a tar archive as it arrives: bytes are pushed in, entries and their content come out, synchronously and without
 * copies where an entry lies within one chunk. Knows ustar, GNU long names, pax (local and global); sparse files, which
 * no builder of images writes, are refused.
 */
import { Buffer } from "node:buffer";
import { HarborError } from "../errors.ts";
import { BLOCK, parseHeader, type TarHeader } from "./tar_header.ts";

export interface TarSink {
  entry(header: TarHeader): void;
  /** Content of the entry that was announced last, in pieces. */
  data(chunk: Buffer): void;
  /** The entry is complete. */
  end(): void;
}

/** Long names and pax records are read whole; nothing real comes near this. */
const MAX_RECORD_BYTES = 1 << 20;

export class TarReader {
  /** A header, or a record, that is not whole yet. */
  #held: Buffer[] = [];
  #heldLength = 0;
  #left = 0;
  #pad = 0;
  #state: "header" | "record" | "data" | "pad" | "ended" = "header";
  #record: TarHeader | undefined;
  #local: Record<string, string> = {};
  #global: Record<string, string> = {};
  #hasPax = false;
  #longName: string | undefined;
  #longLink: string | undefined;

  /** `what` is how errors name the archive. */
  constructor(private readonly sink: TarSink, private readonly what: string) {}

  /** Throws HarborError "image.failed" for what is no tar archive. */
  push(chunk: Buffer): void {
    let at = 0;
    while (at < chunk.length) {
      switch (this.#state) {
        case "ended":
          return; // padding behind the end
        case "header": {
          const whole = this.#collect(chunk, at, BLOCK);
          at = whole.at;
          if (whole.bytes !== undefined) this.#header(whole.bytes);
          break;
        }
        case "record": {
          const whole = this.#collect(chunk, at, this.#left);
          at = whole.at;
          if (whole.bytes !== undefined) this.#takeRecord(whole.bytes);
          break;
        }
        case "data": {
          const take = Math.min(this.#left, chunk.length - at);
          this.sink.data(chunk.subarray(at, at + take));
          at += take;
          this.#left -= take;
          if (this.#left === 0) this.#endOfData();
          break;
        }
        case "pad": {
          const take = Math.min(this.#pad, chunk.length - at);
          at += take;
          this.#pad -= take;
          if (this.#pad === 0) this.#state = "header";
          break;
        }
      }
    }
  }

  /** The archive has come to its end. Throws when that is in the middle of something. An end without zero blocks is one. */
  finish(): void {
    if (this.#state === "ended" || (this.#state === "header" && this.#heldLength === 0)) return;
    if (this.#state === "pad") return; // cut off in the padding of its last file, as some tools write it
    throw this.#bad("it is cut off");
  }

  #collect(chunk: Buffer, at: number, length: number): { at: number; bytes?: Buffer } {
    const take = Math.min(length - this.#heldLength, chunk.length - at);
    const piece = chunk.subarray(at, at + take);
    if (take === length) return { at: at + take, bytes: piece };
    this.#held.push(Buffer.from(piece));
    this.#heldLength += take;
    if (this.#heldLength < length) return { at: at + take };
    const bytes = Buffer.concat(this.#held, length);
    this.#held = [];
    this.#heldLength = 0;
    return { at: at + take, bytes };
  }

  #header(block: Buffer): void {
    let header: TarHeader | undefined;
    try {
      header = parseHeader(block);
    } catch (cause) {
      throw this.#bad((cause as Error).message, cause);
    }
    if (header === undefined) {
      this.#state = "ended"; // one zero block ends it, as for every reader since 1988
      return;
    }
    if (header.size < 0 || !Number.isSafeInteger(header.size)) throw this.#bad("an entry has an impossible size");
    if ("LKxgX".includes(header.type)) {
      if (header.size > MAX_RECORD_BYTES) throw this.#bad("a name or attribute is longer than anything real");
      this.#record = header;
      this.#left = header.size;
      this.#state = "record";
      if (header.size === 0) this.#takeRecord(Buffer.alloc(0));
      return;
    }
    this.#begin(this.#settled(header));
  }

  /** The header with what the records before it said. Most have none before them. */
  #settled(header: TarHeader): TarHeader {
    if (header.type === "S") throw this.#sparse(header);
    const name = this.#longName ?? header.name;
    header.name = name;
    header.linkname = this.#longLink ?? header.linkname;
    this.#longName = this.#longLink = undefined;
    if (this.#hasPax) this.#applyPax(header);
    // Before POSIX a folder was a file's entry whose name ends in a slash; a name cut off for a long one may do so too.
    if (header.type === "0" && header.name.endsWith("/")) header.type = "5";
    return header;
  }

  #applyPax(header: TarHeader): void {
    const pax = { ...this.#global, ...this.#local };
    if (Object.keys(pax).some((key) => key.startsWith("GNU.sparse."))) throw this.#sparse(header);
    if (pax.path) header.name = pax.path;
    if (pax.linkpath) header.linkname = pax.linkpath;
    for (const key of ["size", "uid", "gid", "mtime"] as const) {
      if (!pax[key]) continue;
      const value = Number(pax[key]);
      const isRight = Number.isFinite(value) && (key !== "size" || (Number.isSafeInteger(value) && value >= 0));
      if (!isRight) throw this.#bad(`the attribute ${key} is '${pax[key]}', which it cannot be`);
      header[key] = value;
    }
    header.xattrs = xattrsOf(pax);
    this.#local = {};
    this.#hasPax = Object.keys(this.#global).length > 0;
  }

  #sparse({ name }: TarHeader): HarborError {
    return this.#bad(`'${name}' is a sparse file, which layers cannot have here`);
  }

  #begin(header: TarHeader): void {
    // Links, folders and devices have no content, whatever their header says; GNU tar reads them so too.
    if ("123456".includes(header.type)) header.size = 0;
    const { size } = header;
    this.sink.entry(header);
    this.#left = size;
    this.#pad = (BLOCK - size % BLOCK) % BLOCK;
    this.#state = "data";
    if (size === 0) this.#endOfData();
  }

  #endOfData(): void {
    this.sink.end();
    this.#state = this.#pad > 0 ? "pad" : "header";
  }

  #takeRecord(bytes: Buffer): void {
    const { type, size } = this.#record!;
    this.#pad = (BLOCK - size % BLOCK) % BLOCK;
    this.#state = this.#pad > 0 ? "pad" : "header";
    if (type === "L") this.#longName = cString(bytes);
    else if (type === "K") this.#longLink = cString(bytes);
    else {
      this.#hasPax = true;
      if (type === "g") this.#global = { ...this.#global, ...this.#pax(bytes) };
      else this.#local = { ...this.#local, ...this.#pax(bytes) };
    }
  }

  /** `length key=value\n`, one after the other; values may hold any bytes. */
  #pax(bytes: Buffer): Record<string, string> {
    const records: Record<string, string> = {};
    for (let at = 0; at < bytes.length && bytes[at] !== 0;) {
      const blank = bytes.indexOf(0x20, at);
      const length = Number(bytes.toString("latin1", at, blank));
      const end = at + length;
      if (blank < 0 || !Number.isInteger(length) || length < 5 || end > bytes.length || bytes[end - 1] !== 0x0a) {
        throw this.#bad("a pax record is damaged");
      }
      const equals = bytes.indexOf(0x3d, blank);
      if (equals < 0 || equals >= end) throw this.#bad("a pax record has no value");
      records[bytes.toString("latin1", blank + 1, equals)] = bytes.toString("latin1", equals + 1, end - 1);
      at = end;
    }
    return records;
  }

  #bad(why: string, cause?: unknown): HarborError {
    return new HarborError("image.failed", `${this.what} is not a usable tar archive: ${why}`, { cause });
  }
}

const cString = (bytes: Buffer): string => {
  const end = bytes.indexOf(0);
  return bytes.toString("latin1", 0, end < 0 ? bytes.length : end);
};

const XATTR = "SCHILY.xattr.";

/** Only SCHILY's: LIBARCHIVE's hold the same attributes in another encoding, beside them. */
function xattrsOf(pax: Record<string, string>): Record<string, string> {
  const found: Record<string, string> = {};
  for (const [key, value] of Object.entries(pax)) {
    if (key.startsWith(XATTR)) found[key.slice(XATTR.length)] = value;
  }
  return found;
}
