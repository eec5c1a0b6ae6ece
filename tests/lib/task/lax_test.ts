/** What pydantic 2's lax mode makes of scalars (checked against pydantic 2 itself). */
import { test } from "node:test";
import assert from "node:assert/strict";
import { laxBoolean, laxInteger, laxNumber, megabytes } from "../../../lib/task/lax.ts";

const no = undefined;
const ROWS: [value: unknown, integer: number | undefined, number: number | undefined, boolean: boolean | undefined][] =
  [
    ["2", 2, 2, no],
    [" 2\n", 2, 2, no],
    ["2.0", 2, 2, no],
    ["2.", no, 2, no],
    ["2.5", no, 2.5, no],
    ["1_0", 10, 10, no],
    ["1__0", no, no, no],
    ["_1", no, no, no],
    ["1_", no, no, no],
    ["1_.0", 1, 1, no],
    ["+2", 2, 2, no],
    ["- 2", no, no, no],
    ["007", 7, 7, no],
    ["0x10", no, no, no],
    ["1e3", no, 1000, no],
    [".5", no, 0.5, no],
    ["inf", no, Infinity, no],
    ["-Infinity", no, -Infinity, no],
    ["nan", no, NaN, no],
    ["２", no, no, no],
    ["", no, no, no],
    ["1", 1, 1, true],
    ["0", 0, 0, false],
    ["YES", no, no, true],
    ["off", no, no, false],
    [" yes", no, no, no],
    [true, 1, 1, true],
    [false, 0, 0, false],
    [1, 1, 1, true],
    [2, 2, 2, no],
    [2.5, no, 2.5, no],
    [1e20, no, 1e20, no],
    [9007199254740993n, 9007199254740992, 9007199254740992, no],
    [[], no, no, no],
    [{}, no, no, no],
    [undefined, no, no, no],
  ];
for (const [value, integer, number, boolean] of ROWS) {
  test(`${typeof value} ${String(JSON.stringify(typeof value === "bigint" ? String(value) : value))} as a whole number, a number, a boolean`, () => {
    assert.deepEqual([laxInteger(value), laxNumber(value), laxBoolean(value)], [integer, number, boolean]);
  });
}

const SIZES: [text: string, mebibytes: number | undefined][] = [
  ["2G", 2048],
  [" 1.5g ", 1536],
  ["2 G", 2048],
  ["512M", 512],
  ["1536K", 1],
  ["1K", 0],
  ["-1G", -1024],
  ["1e3M", 1000],
  ["2Gi", no],
  ["2GB", no],
  ["2T", no],
  ["2048", no],
  ["G", no],
  ["", no],
  ["infG", no],
  ["nanM", no],
];
for (const [text, mebibytes] of SIZES) {
  test(`megabytes(${JSON.stringify(text)}) is ${mebibytes}`, () => assert.equal(megabytes(text), mebibytes));
}
