import { test } from "node:test";
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough, Writable } from "node:stream";
import { Buffer } from "node:buffer";
import * as tar from "tar-stream";
import { archiveOf, type HostTree, unpackInto } from "../../../lib/files/tar.ts";
import { HarborError } from "../../../lib/errors.ts";

const AMPLE = { maxEntries: 1000, maxBytes: 1 << 30 };

function scratch(): { path: string } & Disposable {
  const path = mkdtempSync(join(tmpdir(), "gh-tar-"));
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) };
}

async function bytesOf(trees: HostTree[]): Promise<Buffer> {
  const chunks: Buffer[] = [];
  const to = new Writable({ write: (chunk, _, done) => (chunks.push(chunk), done()) });
  await (await archiveOf(trees)).writeTo(to);
  return Buffer.concat(chunks);
}

async function* stream(bytes: Uint8Array, size = 7000): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

/** An archive as a task could have made it. */
function crafted(entries: [Record<string, unknown>, string?][]): Promise<Buffer> {
  // deno-lint-ignore no-explicit-any -- tar-stream ships no types
  const pack = (tar as any).pack();
  const chunks: Buffer[] = [];
  pack.on("data", (chunk: Buffer) => chunks.push(chunk));
  for (const [header, data] of entries) {
    if (data === undefined) pack.entry(header);
    else pack.entry(header, data);
  }
  pack.finalize();
  return new Promise((done) => pack.on("end", () => done(Buffer.concat(chunks))));
}

test("archiveOf() packs modes, links verbatim, long and non-ASCII names, all owned by root, as any tar reads them", async () => {
  using dir = scratch();
  const from = join(dir.path, "from");
  const long = `${"n".repeat(120)}/${"m".repeat(140)}.txt`;
  mkdirSync(join(from, "sub", "n".repeat(120)), { recursive: true });
  writeFileSync(join(from, "sub", long), "long");
  writeFileSync(join(from, "né ü.sh"), "#!/bin/sh\n", { mode: 0o750 });
  chmodSync(join(from, "né ü.sh"), 0o750);
  symlinkSync("../shared/x y", join(from, "link"));
  symlinkSync("/etc/passwd", join(from, "absolute"));
  execFileSync("mkfifo", [join(from, "fifo")]);
  const out = join(dir.path, "out");
  mkdirSync(out);
  const bytes = await bytesOf([{
    from,
    to: "/tests",
    executable: [`sub/${long}`],
    extra: { "made.sh": { data: "é", mode: 0o755 } },
  }]);
  const listing = execFileSync("tar", ["--numeric-owner", "-tvf", "-"], { input: bytes }).toString();
  assert.ok(listing.split("\n").filter(Boolean).every((line) => line.includes(" 0/0 ")), listing);
  execFileSync("tar", ["-xpf", "-", "-C", out], { input: bytes });
  assert.equal(statSync(join(out, "tests/né ü.sh")).mode & 0o777, 0o750);
  assert.equal(statSync(join(out, "tests/sub", long)).mode & 0o111, 0o111);
  assert.equal(readFileSync(join(out, "tests/made.sh"), "utf8"), "é");
  assert.equal(readlinkSync(join(out, "tests/link")), "../shared/x y");
  assert.equal(readlinkSync(join(out, "tests/absolute")), "/etc/passwd");
  assert.equal(existsSync(join(out, "tests/fifo")), false);
});

test("archiveOf() carries only what is named, with the folders it lies in, and names the folders to be real", async () => {
  using dir = scratch();
  mkdirSync(join(dir.path, "a/b/c"), { recursive: true });
  writeFileSync(join(dir.path, "a/b/keep"), "k");
  writeFileSync(join(dir.path, "a/b/drop"), "d");
  const trees = [{ from: dir.path, to: "/w/", only: ["a/b/keep"] }];
  const names = execFileSync("tar", ["-tf", "-"], { input: await bytesOf(trees) }).toString().trim().split("\n");
  assert.deepEqual(names, ["w/a", "w/a/b", "w/a/b/keep"]);
  assert.deepEqual((await archiveOf(trees)).folders, ["/w", "/w/a", "/w/a/b"]);
});

test("archiveOf() waits for a slow reader and gives up when the reader leaves", async () => {
  using dir = scratch();
  for (let n = 0; n < 4; n++) writeFileSync(join(dir.path, `big${n}`), Buffer.alloc(3 << 20));
  let most = 0;
  let pending = 0;
  const slow = new PassThrough({ highWaterMark: 64 * 1024 });
  const archive = await archiveOf([{ from: dir.path, to: "/t" }]);
  const sent = archive.writeTo(slow).then(() => slow.end());
  for await (const chunk of slow) {
    pending = slow.readableLength + slow.writableLength;
    most = Math.max(most, pending);
    await new Promise((next) => setTimeout(next, 0));
    assert.ok(chunk.length > 0);
  }
  await sent;
  assert.ok(most < 4 << 20, `${most} bytes were waiting`);
  const gone = new PassThrough().on("error", () => {});
  const failing = archive.writeTo(gone);
  gone.destroy(new Error("reader left"));
  await assert.rejects(failing, (error) => error instanceof HarborError && error.code === "transfer.failed");
});

test("archiveOf() names a folder or a file that is not there", async () => {
  using dir = scratch();
  for (const tree of [{ from: join(dir.path, "none"), to: "/x" }, { from: dir.path, to: "/x", only: ["none"] }]) {
    await assert.rejects(archiveOf([tree]), { code: "transfer.failed", message: /none/ });
  }
});

test("unpackInto() brings a packed tree back", async () => {
  using dir = scratch();
  const [from, to] = [join(dir.path, "from"), join(dir.path, "to")];
  mkdirSync(join(from, "d"), { recursive: true });
  mkdirSync(to);
  writeFileSync(join(from, "d/big"), Buffer.alloc(2_500_000, 7));
  writeFileSync(join(from, "d/empty"), "");
  symlinkSync("d/big", join(from, "link"));
  const report = await unpackInto(stream(await bytesOf([{ from, to: "/" }])), to, AMPLE);
  assert.deepEqual(report, { files: 3, bytes: 2_500_000, refused: [] });
  assert.equal(readFileSync(join(to, "link")).length, 2_500_000);
});

test("unpackInto() refuses what leads out of the folder or is no file, by reason", async () => {
  const rows: { entries: [Record<string, unknown>, string?][]; path: string; reason: RegExp }[] = [
    { entries: [[{ name: "../up" }, "x"]], path: "../up", reason: /out of the folder/ },
    { entries: [[{ name: "a/../../up" }, "x"]], path: "a/../../up", reason: /out of the folder/ },
    { entries: [[{ name: "/etc/absolute" }, "x"]], path: "/etc/absolute", reason: /out of the folder/ },
    {
      entries: [[{ name: "l", type: "symlink", linkname: "/etc" }], [{ name: "l/pwn" }, "x"]],
      path: "l/pwn",
      reason: /through a symbolic link/,
    },
    {
      entries: [[{ name: "l", type: "symlink", linkname: "/etc/passwd" }]],
      path: "l",
      reason: /link out of the folder/,
    },
    { entries: [[{ name: "l", type: "symlink", linkname: "../x" }]], path: "l", reason: /link out of the folder/ },
    {
      entries: [[{ name: "a/b/d", type: "symlink", linkname: "../.." }], [{
        name: "e",
        type: "symlink",
        linkname: "a/b/d/../x",
      }]],
      path: "e",
      reason: /link out of the folder/,
    },
    { entries: [[{ name: "e", type: "symlink", linkname: "e/x" }]], path: "e", reason: /link out of the folder/ },
    { entries: [[{ name: "h", type: "link", linkname: "../../etc/passwd" }]], path: "h", reason: /hard link/ },
    { entries: [[{ name: "h", type: "link", linkname: "never" }]], path: "h", reason: /hard link/ },
    { entries: [[{ name: "null", type: "character-device" }]], path: "null", reason: /device/ },
    { entries: [[{ name: "disk", type: "block-device" }]], path: "disk", reason: /device/ },
    { entries: [[{ name: "pipe", type: "fifo" }]], path: "pipe", reason: /FIFO/ },
    { entries: [[{ name: "x".repeat(300) }, "x"]], path: "x".repeat(300), reason: /too long/ },
  ];
  for (const { entries, path, reason } of rows) {
    using dir = scratch();
    const report = await unpackInto(stream(await crafted([...entries, [{ name: "after" }, "ok"]])), dir.path, AMPLE);
    const found = report.refused.find((one) => one.path === path);
    assert.match(found?.reason ?? "not refused", reason, path);
    assert.equal(readFileSync(join(dir.path, "after"), "utf8"), "ok", "what comes after still arrives");
  }
  assert.equal(existsSync("/etc/pwn"), false);
});

test("unpackInto() makes what a task closed to others readable for us, without set-uid bits", async () => {
  using dir = scratch();
  await unpackInto(
    stream(await crafted([[{ name: "d", type: "directory", mode: 0 }], [{ name: "d/f", mode: 0o4000 }, "x"]])),
    dir.path,
    AMPLE,
  );
  assert.equal(lstatSync(join(dir.path, "d/f")).mode & 0o7777, 0o600);
  assert.equal(lstatSync(join(dir.path, "d")).mode & 0o700, 0o700);
});

test("unpackInto() keeps within its limits and still reads the stream to its end", async () => {
  using dir = scratch();
  const bytes = await crafted([[{ name: "a" }, "12345"], [{ name: "b" }, "1234567890"], [{ name: "c" }, "123"], [{
    name: "d",
  }, "1"]]);
  let read = 0;
  async function* counted() {
    for await (const chunk of stream(bytes)) yield (read += chunk.length, chunk);
  }
  const report = await unpackInto(counted(), dir.path, { maxEntries: 3, maxBytes: 9 });
  assert.deepEqual(readdirSync(dir.path).sort(), ["a", "c"]);
  assert.equal(read, bytes.length);
  assert.deepEqual(report.refused.map(({ path }) => path), ["b", "d"]);
});

test("unpackInto() says that an archive was cut off and keeps no half file", async () => {
  using dir = scratch();
  const bytes = await crafted([[{ name: "whole" }, "w"], [{ name: "half" }, "h".repeat(5000)]]);
  const report = await unpackInto(stream(bytes.subarray(0, 3000)), dir.path, AMPLE);
  assert.deepEqual(readdirSync(dir.path), ["whole"]);
  assert.match(report.refused[0]!.reason, /cut off/);
});

test("unpackInto() takes no garbage for an archive and passes on what its source throws", async () => {
  using dir = scratch();
  const garbage = Buffer.alloc(4096, 0x41);
  await assert.rejects(unpackInto(stream(garbage), dir.path, AMPLE), { code: "transfer.failed" });
  // deno-lint-ignore require-yield -- a source that fails before its first chunk
  const failing = async function* (): AsyncGenerator<Uint8Array> {
    throw await Promise.resolve(new HarborError("sandbox.lost", "gone"));
  };
  await assert.rejects(unpackInto(failing(), dir.path, AMPLE), { code: "sandbox.lost" });
  assert.deepEqual(await unpackInto(stream(Buffer.alloc(0)), dir.path, AMPLE), { files: 0, bytes: 0, refused: [] });
});
