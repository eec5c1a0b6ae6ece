import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { execFileSync } from "node:child_process";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { END_OF_ARCHIVE, headerBlocks, padding, type TarHeader } from "../../../lib/unpack/tar_header.ts";
import { TarReader } from "../../../lib/unpack/tar_reader.ts";
import { TempFolder } from "../../support/tasks.ts";

interface Read {
  header: TarHeader;
  data: string;
}

/** Reads an archive that comes in pieces of `size` bytes. */
function read(archive: Uint8Array, size = archive.length): Read[] {
  const found: Read[] = [];
  const reader = new TarReader({
    entry: (header) => void found.push({ header: { ...header }, data: "" }),
    data: (chunk) => void (found.at(-1)!.data += chunk.toString("latin1")),
    end: () => {},
  }, "x.tar");
  const bytes = Buffer.from(archive);
  for (let at = 0; at < bytes.length; at += Math.max(1, size)) reader.push(bytes.subarray(at, at + size));
  reader.finish();
  return found;
}

/** A pax record block before an entry. */
function pax(records: string, type = "x"): Buffer {
  const bytes = Buffer.from(records, "latin1");
  return Buffer.concat([headerBlocks({ name: "pax", type, size: bytes.length }), bytes, padding(bytes.length)]);
}
const record = (key: string, value: string): string => {
  const rest = ` ${key}=${value}\n`;
  let length = rest.length + 1;
  while (String(length).length + rest.length !== length) length++;
  return `${length}${rest}`;
};
const archive = (...parts: Buffer[]): Uint8Array => new Uint8Array(Buffer.concat([...parts, END_OF_ARCHIVE]));
const entry = (name: string, content = ""): Buffer =>
  Buffer.concat([headerBlocks({ name, size: content.length }), Buffer.from(content), padding(content.length)]);

for (const format of ["ustar", "gnu", "pax", "v7"]) {
  test(`TarReader reads what GNU tar writes as ${format}, in pieces of any size`, () => {
    using temp = new TempFolder("tar");
    const long = format === "v7" ? "short" : `${"l".repeat(90)}/${"n".repeat(60)}`;
    mkdirSync(temp.join("in", long, ".."), { recursive: true });
    writeFileSync(temp.join("in", long), "content of it\n".repeat(100));
    symlinkSync(format === "gnu" || format === "pax" ? "t".repeat(150) : "t", temp.join("in/link"));
    const bytes = execFileSync("tar", [`--format=${format}`, "--sort=name", "-C", temp.join("in"), "-cf", "-", "."]);
    const whole = read(bytes);
    const file = whole.find(({ header }) => header.type === "0")!;
    assert.equal(file.header.name, `./${long}`);
    assert.equal(file.data, "content of it\n".repeat(100));
    assert.equal(
      whole.find(({ header }) => header.type === "2")!.header.linkname.length,
      format === "gnu" || format === "pax" ? 150 : 1,
    );
    for (const size of [1, 511, 512, 513, 1000]) assert.deepEqual(read(bytes, size), whole, `pieces of ${size}`);
  });
}

test("a global pax record holds until the end, a local one for one entry", () => {
  const found = read(archive(
    pax(record("uid", "7"), "g"),
    entry("a"),
    pax(record("uid", "8") + record("path", "long name") + record("mtime", "1.5")),
    entry("b"),
    entry("c"),
  ));
  assert.deepEqual(found.map(({ header }) => [header.name, header.uid, header.mtime]), [["a", 7, 0], [
    "long name",
    8,
    1.5,
  ], ["c", 7, 0]]);
});

test("attributes hold any bytes, and only SCHILY's are taken", () => {
  const value = "\0\n=\xff";
  const [one] = read(archive(
    pax(record("SCHILY.xattr.user.x", value) + record("LIBARCHIVE.xattr.user.y", "eA==") + record("comment", "hi")),
    entry("a"),
  ));
  assert.deepEqual(one!.header.xattrs, { "user.x": value });
});

test("numbers too large for octal digits are read", () => {
  const [one] = read(archive(headerBlocks({ name: "big-ids", uid: 3_000_000_000, gid: 2_097_152 })));
  assert.deepEqual([one!.header.uid, one!.header.gid], [3_000_000_000, 2_097_152]);
});

const BAD: [name: string, bytes: Uint8Array, says: RegExp][] = [
  [
    "a header that was changed",
    (() => {
      const bytes = archive(entry("a"));
      bytes[0] = 0x62;
      return bytes;
    })(),
    /wrong checksum/,
  ],
  ["half of a header", archive(entry("a")).subarray(0, 300), /cut off/],
  ["half of a file", archive(entry("a", "x".repeat(2000))).subarray(0, 1500), /cut off/],
  ["a sparse file of GNU tar", archive(headerBlocks({ name: "s", type: "S" })), /sparse/],
  ["a sparse file in pax", archive(pax(record("GNU.sparse.major", "1")), entry("a")), /sparse/],
  ["a pax size that is none", archive(pax(record("size", "-5")), entry("a")), /attribute size is '-5'/],
  ["a pax size with a fraction", archive(pax(record("size", "0.5")), entry("a")), /attribute size/],
  ["a pax record whose length lies", archive(pax("99 path=x\n"), entry("a")), /pax record is damaged/],
  ["a pax record without an end", archive(pax("11 path=xxx"), entry("a")), /pax record is damaged/],
  [
    "a name of two megabytes",
    archive(headerBlocks({ name: "././@LongLink", type: "L", size: 2 << 20 })),
    /longer than anything real/,
  ],
];
for (const [name, bytes, says] of BAD) {
  test(`TarReader refuses ${name}`, () => {
    for (const size of [bytes.length, 100]) assert.throws(() => read(bytes, size), says);
  });
}

test("an archive without zero blocks at its end, or of nothing, is one", () => {
  assert.equal(read(new Uint8Array(entry("a", "x"))).length, 1);
  assert.deepEqual(read(new Uint8Array(END_OF_ARCHIVE)), []);
});
