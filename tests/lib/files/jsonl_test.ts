import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { appendFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { HarborError } from "../../../lib/errors.ts";
import { JsonlAppender, type JsonlRow, readJsonl, type ReadOptions } from "../../../lib/files/jsonl.ts";
import { TempFolder } from "../../support/tasks.ts";

async function all<T>(path: string, options?: ReadOptions<T>): Promise<JsonlRow<T>[]> {
  return await Array.fromAsync(readJsonl(path, options));
}

test("JsonlAppender adds whole lines in the order of the calls, also when they overlap", async () => {
  using temp = new TempFolder();
  const path = temp.join("rows.jsonl");
  await using rows = await JsonlAppender.open(path);
  await Promise.all(Array.from({ length: 50 }, (_, n) => rows.append({ n, text: "é\n".repeat(n) })));
  const read = await all<{ n: number }>(path);
  assert.deepEqual(read.map(({ value }) => value.n), Array.from({ length: 50 }, (_, n) => n));
  assert.equal(read[49]!.line, 50);
  assert.equal(readFileSync(path, "utf8").split("\n").length, 51);
});

for (
  const [what, before, after] of [
    ["half a row", `{"n":1}\n{"n":2,"te`, `{"n":1}\n`],
    ["a whole document without its line feed", `{"n":1}\n{"n":2}`, `{"n":1}\n`],
    ["a single half row", `{"n`, ""],
    ["a long half row", `{"n":1}\n${"x".repeat(700_000)}`, `{"n":1}\n`],
    ["half a UTF-8 character", Buffer.from(`{"n":1}\n{"t":"é`).subarray(0, -1), `{"n":1}\n`],
    ["nothing torn", `{"n":1}\n`, `{"n":1}\n`],
    ["an empty file", "", ""],
  ] as const
) {
  test(`JsonlAppender.open() cuts off what a dead writer left: ${what}`, async () => {
    using temp = new TempFolder();
    const path = temp.join("rows.jsonl");
    writeFileSync(path, before);
    const notes: string[] = [];
    await using rows = await JsonlAppender.open(path, { note: (text) => notes.push(text) });
    assert.equal(readFileSync(path, "utf8"), after);
    assert.equal(notes.length, before.length === after.length ? 0 : 1, notes.join());
    await rows.append({ n: 3 });
    assert.equal(readFileSync(path, "utf8"), `${after}{"n":3}\n`);
  });
}

test(
  "JsonlAppender puts the file back to its last whole row when the disk is full",
  async () => {
    using temp = new TempFolder();
    const path = temp.join("rows.jsonl");
    await using rows = await JsonlAppender.open(path);
    await rows.append({ n: 1 });
    const real = rows.file.write.bind(rows.file);
    let writes = 0;
    // deno-lint-ignore no-explicit-any -- stands in for a disk that takes half a row and then says ENOSPC
    (rows.file as any).write = (data: Uint8Array, from: number) => {
      if (++writes === 1) return real(data, from, 4);
      return Promise.reject(Object.assign(new Error("ENOSPC: no space left on device"), { code: "ENOSPC" }));
    };
    await assert.rejects(rows.append({ n: 2 }), (error: HarborError) => {
      assert.equal(error.code, "store.unwritable");
      assert.match(error.message, /rows\.jsonl: no space left on the disk$/);
      assert.match(error.hint!, /--resume/);
      return true;
    });
    // deno-lint-ignore no-explicit-any -- see above
    (rows.file as any).write = real;
    await rows.append({ n: 3 });
    assert.deepEqual((await all(path)).map(({ value }) => value), [{ n: 1 }, { n: 3 }]);
  },
);

test("JsonlAppender.open() says store.unwritable for a place it cannot write", async () => {
  using temp = new TempFolder();
  mkdirSync(temp.join("folder"));
  for (const path of [temp.join("folder"), temp.join("no/such/rows.jsonl")]) {
    await assert.rejects(JsonlAppender.open(path), { code: "store.unwritable" });
  }
});

test("readJsonl() skips blank lines and half a last line, with a note", async () => {
  using temp = new TempFolder();
  const path = temp.join("rows.jsonl");
  writeFileSync(path, `{"n":1}\n\n  \n{"n":2}\r\n{"n":`);
  const notes: string[] = [];
  const read = await all(path, { note: (text) => notes.push(text) });
  assert.deepEqual(read, [{ value: { n: 1 }, line: 1 }, { value: { n: 2 }, line: 4 }]);
  assert.equal(notes.length, 1);
  assert.match(notes[0]!, /rows\.jsonl:5: skipped half a row \(5 bytes\)/);
});

for (
  const [what, bad] of [
    ["no JSON", "{nonsense"],
    ["two documents", "{} {}"],
    ["bytes that are not UTF-8", Buffer.from([0x22, 0xff, 0x22])],
    ["NUL bytes of a lost page", Buffer.alloc(9)],
  ] as const
) {
  test(`readJsonl() names the file and line of a bad row: ${what}`, async () => {
    using temp = new TempFolder();
    const path = temp.join("rows.jsonl");
    writeFileSync(path, `{"n":1}\n`);
    appendFileSync(path, bad);
    appendFileSync(path, `\n{"n":3}\n`);
    await assert.rejects(all(path), (error: HarborError) => {
      assert.equal(error.code, "store.corrupt");
      assert.match(error.message, /rows\.jsonl:2 is not a row/);
      return true;
    });
  });
}

test("readJsonl() turns what the caller's parser refuses into store.corrupt with its place", async () => {
  using temp = new TempFolder();
  const path = temp.join("rows.jsonl");
  writeFileSync(path, `{"n":1}\n{"n":"two"}\n`);
  const parse = (value: unknown): number => {
    const { n } = value as { n: unknown };
    if (typeof n !== "number") throw new Error("n is no number");
    return n;
  };
  await assert.rejects(all(path, { parse }), /rows\.jsonl:2 is not a row we wrote: n is no number/);
});

test("readJsonl() reads rows that are longer than its buffer, and yields before it has read all", async () => {
  using temp = new TempFolder();
  const path = temp.join("rows.jsonl");
  const long = "x".repeat(1_000_000);
  writeFileSync(path, `{"n":1}\n${JSON.stringify({ long })}\n{"n":3}\nbroken\n`);
  const seen: unknown[] = [];
  for await (const { value } of readJsonl(path)) {
    seen.push(value);
    if (seen.length === 3) break;
  }
  assert.deepEqual(seen, [{ n: 1 }, { long }, { n: 3 }]);
});
