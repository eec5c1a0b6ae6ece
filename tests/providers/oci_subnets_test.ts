import { test } from "node:test";
import assert from "node:assert/strict";
import { freeSubnets, memberAddress, prefixFor, rangeOf, routedRanges } from "../../providers/_oci_subnets.ts";

const pool = rangeOf("10.213.0.0/26")!;
const all = (
  busy: string[],
  start = 0,
  prefix = 28,
) => [...freeSubnets(pool, prefix, busy.map((one) => rangeOf(one)!), start)];

test("rangeOf() reads a subnet and nothing else", () => {
  assert.deepEqual(rangeOf("0.0.1.7/24"), { first: 256, last: 511 });
  assert.deepEqual(rangeOf("255.255.255.255/32"), { first: 2 ** 32 - 1, last: 2 ** 32 - 1 });
  for (const text of ["", "10.0.0.0", "10.0.0.256/8", "10.0.0.0/33", "fd00::/8", "a.b.c.d/8"]) {
    assert.equal(rangeOf(text), undefined, text);
  }
});

test("F1: freeSubnets() gives every subnet once, from any place on, and none that touches what is busy", () => {
  const four = ["10.213.0.0/28", "10.213.0.16/28", "10.213.0.32/28", "10.213.0.48/28"];
  assert.deepEqual(all([]), four);
  assert.deepEqual(all([], 6), [...four.slice(2), ...four.slice(0, 2)]);
  assert.deepEqual(all(["10.213.0.20/30", "10.213.0.0/32"]), four.slice(2));
  assert.deepEqual(all(["10.0.0.0/8"]), []);
  assert.deepEqual(all(["10.213.0.31/32"], 0, 27), ["10.213.0.32/27"]);
});

test("a subnet is large enough for its members, who have an address each", () => {
  const rows: [number, number][] = [[1, 28], [13, 28], [14, 27], [29, 27], [30, 26]];
  for (const [members, prefix] of rows) assert.equal(prefixFor(members), prefix, String(members));
  assert.deepEqual([0, 12].map((index) => memberAddress("10.213.7.240/28", index)), ["10.213.7.242", "10.213.7.254"]);
});

test("routedRanges() reads the kernel's table, without the default route", () => {
  const table = `Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
docker0\t0000D50A\t00000000\t0001\t0\t0\t0\tF0FFFFFF\t0\t0\t0
tun0\t00000A0A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0

`;
  assert.deepEqual(routedRanges(table)[0], rangeOf("10.213.0.0/28"));
  assert.equal(routedRanges(table).length, 2);
  assert.deepEqual(routedRanges(""), []);
});
