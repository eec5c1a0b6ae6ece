/**
 * `deno task bench [NAME...]`: measures the compiled file. A table goes to stderr, one JSON object to stdout, and the
 * exit code is 1 when a number crossed its limit. Times are compared within one run; alone they say little.
 */
import { existsSync } from "node:fs";
import { cpus } from "node:os";
import { join, resolve } from "node:path";
import process from "node:process";
import type { Bench, Row } from "./row.ts";

/** In this order; `images`, `host`, `namespace` and `engines` say so themselves when this machine lacks what they need. */
const BENCHES = ["start", "check", "digest", "prepare", "images", "bundle", "host", "namespace", "engines"];

const here = import.meta.dirname!;
const binary = resolve(process.env.GYM_HARBOR_BIN ?? join(here, "..", "..", "dist", "gym-harbor"));
const wanted = process.argv.slice(2);
const unknown = wanted.filter((name) => !BENCHES.includes(name));
if (unknown.length > 0) fail(`unknown bench '${unknown[0]}'; there are ${BENCHES.join(", ")}`);
if (!existsSync(binary)) fail(`${binary} is not there: deno task compile`);

const rows: Row[] = [];
for (const name of BENCHES.filter((one) => wanted.length === 0 || wanted.includes(one))) {
  const file = join(here, `${name}.ts`);
  if (!existsSync(file)) continue;
  const { bench } = await import(file) as { bench: Bench };
  for (const row of await bench(binary)) {
    rows.push(row);
    process.stderr.write(line(row));
  }
}
process.stdout.write(JSON.stringify({ cpu: cpus()[0]?.model ?? "", cpus: cpus().length, rows }, null, 2) + "\n");
process.exitCode = rows.every((row) => row.ok) ? 0 : 1;

function line({ name, value, unit, limit, better, ok, note }: Row): string {
  const bound = limit === undefined ? "" : `${better === "higher" ? "≥" : "≤"} ${figure(limit)} ${unit}`;
  const verdict = limit === undefined ? "    " : ok ? "ok  " : "OVER";
  return `${verdict} ${name.padEnd(64)} ${figure(value).padStart(9)} ${unit.padEnd(8)} ${bound}${
    note === undefined ? "" : `  (${note})`
  }\n`;
}

function figure(value: number): string {
  return Math.abs(value) >= 100 ? value.toFixed(0) : Math.abs(value) >= 10 ? value.toFixed(1) : value.toFixed(2);
}

function fail(why: string): never {
  process.stderr.write(`bench: ${why}\n`);
  process.exit(2);
}
