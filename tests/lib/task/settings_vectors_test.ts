/** Verdicts and resolved values of Harbor 0.25.0 (and 0.20.0 where the newer is silent) under --strict. */
import { test } from "node:test";
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { Findings } from "../../../lib/task/refusals.ts";
import { readSettings } from "../../../lib/task/settings.ts";

const data = process.env.GYM_HARBOR_DATA ?? "/nonexistent";

interface Row {
  case: string;
  toml: string;
  verdict: "accepted" | "refused" | "toml-error" | "crash";
  resolved: Record<string, unknown> | null;
}

/** Rows of the older file may hold bare NaN and Infinity, which JSON.parse refuses. */
function rows(file: string): Row[] {
  const text = readFileSync(join(data, "vectors", file), "utf8").trim();
  return text.split("\n").map((line) => JSON.parse(line.replace(/(?<=[:,[] )(-?Infinity|NaN)(?=[,\]}])/g, '"$1"')));
}

const newer = "harbor-0.25.0/task-toml-cases.jsonl";
const skip = !existsSync(join(data, "vectors", newer)) && "GYM_HARBOR_DATA is not set";

/** `infG` makes upstream crash; decisions 13 refuses it. */
const wanted = (row: Row): string => row.verdict === "crash" ? "refused" : row.verdict;

function verdict(toml: string): { verdict: string; resolved: unknown; why: string } {
  const findings = new Findings();
  const settings = readSettings(toml, findings, { strict: true, shownAs: "task.toml" });
  const syntax = findings.errors.some((one) => one.code === "toml.syntax");
  const said = settings !== null ? "accepted" : syntax ? "toml-error" : "refused";
  return {
    verdict: said,
    resolved: numbers(settings?.resolved() ?? null),
    why: findings.errors.map((one) => one.message).join("; "),
  };
}

/** JSON.parse of a vector rounds what bigint keeps. */
const numbers = (value: unknown): unknown =>
  JSON.parse(JSON.stringify(value, (_, one) => typeof one === "bigint" ? Number(one) : one));

for (const file of [newer, "task-toml-cases.jsonl"]) {
  test(`readSettings() gives Harbor's verdict and values under --strict: ${file}`, { skip }, () => {
    const newest = new Map(rows(newer).map((row) => [row.toml, row]));
    for (const row of rows(file)) {
      const best = newest.get(row.toml) ?? row;
      const got = verdict(row.toml);
      assert.equal(got.verdict, wanted(best), `${row.case}: ${got.why}`);
      if (best.verdict === "accepted") assert.deepEqual(got.resolved, best.resolved, row.case);
    }
  });
}

const expected = join(data, "inputs/expected-harbor-0.25.0.jsonl");
test("readSettings() gives Harbor's verdict and values for the public task.toml files", {
  skip: !existsSync(expected) && "GYM_HARBOR_DATA is not set",
}, () => {
  for (const line of readFileSync(expected, "utf8").trim().split("\n")) {
    const row = JSON.parse(line);
    const got = verdict(readFileSync(join(data, "inputs", row.path, "task.toml"), "utf8"));
    assert.equal(got.verdict, row.toml === "crash" ? "refused" : row.toml, `${row.path}: ${got.why}`);
    if (row.resolved !== undefined) assert.deepEqual(got.resolved, row.resolved, row.path);
  }
});
