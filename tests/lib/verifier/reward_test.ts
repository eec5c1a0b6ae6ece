import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Buffer } from "node:buffer";
import process from "node:process";
import { readRewards, type RewardName } from "../../../lib/verifier/reward.ts";
import type { Collected } from "../../../lib/sandbox/provider.ts";

const absent: Collected = { kind: "absent" };
const file = (content: string | Uint8Array): Collected => ({ kind: "file", data: Buffer.from(content) });
const read = (files: Partial<Record<RewardName, Collected>>) =>
  readRewards({ "reward.json": absent, "reward.txt": absent, ...files });

const plain: [string, Partial<Record<RewardName, string>>, number | RegExp][] = [
  ["one number with a line end", { "reward.txt": "1\n" }, 1],
  ["a fraction without digits before the point", { "reward.txt": ".5" }, 0.5],
  ["a number that ends in its point", { "reward.txt": "5." }, 5],
  ["an exponent", { "reward.txt": "-1e-3" }, -0.001],
  ["A10: digit separators", { "reward.txt": "1_0" }, /does not hold one number/],
  ["A10: a full-width digit", { "reward.txt": "１" }, /does not hold one number/],
  ["A10: a no-break space", { "reward.txt": "\u00a01" }, /does not hold one number/],
  ["A10: a boolean in JSON", { "reward.json": '{"reward":true}' }, /'reward' is not a finite number/],
  ["A17: a labelled number", { "reward.txt": "reward: 1" }, /does not hold one number: "reward: 1"/],
  ["hexadecimal", { "reward.txt": "0x10" }, /does not hold one number/],
  ["infinity", { "reward.txt": "inf" }, /does not hold one number/],
  ["a number beyond doubles", { "reward.txt": "1e999" }, /not a finite number/],
  ["a byte order mark", { "reward.txt": "\ufeff1" }, /does not hold one number/],
  ["an empty file", { "reward.txt": " \n" }, /reward.txt is empty/],
  ["A4: extra metrics beside the headline", { "reward.json": '{"reward":1,"protocol":1,"correctness":0}' }, 1],
  ["a single key of another name", { "reward.json": '{"accuracy":0.25}' }, 0.25],
  [
    "several keys without a headline",
    { "reward.json": '{"a":1,"b":0.5}' },
    /several keys and none named "reward": "a", "b"/,
  ],
  [
    "A5: half an object quotes its first bytes",
    { "reward.json": '{"reward": 1' },
    /not valid JSON: "\{\\"reward\\": 1"/,
  ],
  ["a bare number in JSON", { "reward.json": "1" }, /must hold a non-empty JSON object/],
  ["a key that objects inherit", { "reward.json": '{"constructor":1}' }, 1],
  ["A3: a diagnostic without another file", { "reward.json": '{"reward":1,"log":"x"}' }, /'log'.*reward-details\.json/],
  ["both unusable", { "reward.json": "{", "reward.txt": "x" }, /not valid JSON.*; reward\.txt does not/],
];

for (const [what, files, wanted] of plain) {
  test(`readRewards(): ${what}`, () => {
    const reading = read(Object.fromEntries(Object.entries(files).map(([name, text]) => [name, file(text!)])));
    if (typeof wanted === "number") {
      assert.equal(reading.kind, "reward");
      assert.equal(reading.kind === "reward" && reading.reward, wanted);
    } else {
      assert.equal(reading.kind, "invalid");
      assert.match(reading.kind === "invalid" ? reading.reason : "", wanted);
    }
  });
}

test("readRewards() tells no file from an unusable one", () => assert.deepEqual(read({}), { kind: "absent" }));

test("A7: readRewards() names why a file was not read", () => {
  const reading = read({ "reward.txt": { kind: "refused", reason: "larger than 1048576 bytes" } });
  assert.deepEqual(reading, {
    kind: "invalid",
    reason: "reward.txt was not read: it is larger than 1048576 bytes",
    rewards: null,
  });
});

test("A2: readRewards() lets reward.json count and notes that reward.txt differs", () => {
  const reading = read({ "reward.json": file('{"reward":0.25}'), "reward.txt": file("1") });
  assert.equal(reading.kind === "reward" && reading.reward, 0.25);
  assert.deepEqual(reading.kind === "reward" && reading.notes, [
    "reward.json says 0.25 and reward.txt says 1; reward.json counts",
  ]);
});

test("A3: readRewards() falls back to reward.txt only with a note that names the key", () => {
  const reading = read({ "reward.json": file('{"reward":1,"resolved":"yes"}'), "reward.txt": file("1") });
  assert.equal(reading.kind === "reward" && reading.reward, 1);
  assert.match(reading.kind === "reward" ? reading.notes.join() : "", /'resolved'.*reward\.txt counts instead/);
});

/** Where we differ from Harbor 0.25.0 on purpose (decisions 12, task-format §5.6). */
const EXCEPTIONS: Record<RewardName, Record<string, string>> = {
  "reward.json": {
    "{}": "an object without a reward is refused, not an empty success",
    '{"reward":1,"ok":true,"n":3}': "a boolean is not a number",
    '{"reward":true}': "a boolean is not a number",
  },
  "reward.txt": {
    "１": "digits are ASCII's",
    "٣": "digits are ASCII's",
    "١": "digits are ASCII's",
    "٣.٥": "digits are ASCII's",
    "\u00a01\u00a0": "white space is ASCII's",
    "1\u00a0": "white space is ASCII's",
    "\u20031\u2003": "white space is ASCII's",
    "1_0": "no digit separators",
    "1_000.5": "no digit separators",
  },
};

const data = process.env.GYM_HARBOR_DATA;
for (const name of ["reward.json", "reward.txt"] as const) {
  const path = join(data ?? "/nonexistent", "vectors/harbor-0.25.0", `${name.replace(".", "-")}.jsonl`);
  test(`A10: ${name} reads as Harbor 0.25.0 reads it, save the named exceptions`, {
    skip: existsSync(path) ? false : "GYM_HARBOR_DATA names no folder with vectors",
  }, () => {
    let compared = 0;
    for (const line of readFileSync(path, "utf8").trimEnd().split("\n")) {
      const row = JSON.parse(line) as {
        hex: string | null;
        text: string;
        len: number;
        outcome: string;
        rewards?: object;
      };
      const bytes = row.hex === null ? Buffer.from(row.text[0]!.repeat(row.len)) : Buffer.from(row.hex, "hex");
      const text = bytes.toString("utf8");
      const reading = read({ [name]: file(bytes) });
      const rewards = reading.kind === "absent" ? null : reading.rewards;
      const exception = EXCEPTIONS[name][text];
      if (exception !== undefined) {
        assert.equal(rewards, null, `${text}: listed as an exception (${exception})`);
      } else {
        assert.deepEqual(rewards && { ...rewards }, row.outcome === "ok" ? row.rewards : null, `${row.text}`);
        compared++;
      }
    }
    assert.ok(compared > 30, `only ${compared} rows compared`);
  });
}
