/** instruction.md and host templates: Harbor's vectors, and where NeMo Gym differs from them on purpose. */
import { test } from "node:test";
import assert from "node:assert/strict";
import { withoutCanary } from "../../../lib/task/canary.ts";
import { missingVariables, resolveTemplates, template } from "../../../lib/task/env.ts";
import { dataRows } from "../../support/data.ts";

const CANARIES: [text: string, rest: string][] = [
  ["# canary abc\n\nDo it", "Do it"],
  ["  # CANARY x  \n<!-- canary -->\n\n\nDo it\n\n", "Do it\n\n"],
  ["# canary\r\n\r\nDo it\r\n", "Do it\r\n"],
  ["# Title\n# canary\n", "# Title\n# canary\n"],
  ["<!-- multi\ncanary -->\nDo", "<!-- multi\ncanary -->\nDo"],
  ["\n\nDo it", "\n\nDo it"],
  ["# canary only", ""],
  ["", ""],
];
for (const [text, rest] of CANARIES) {
  test(`withoutCanary(${JSON.stringify(text)})`, () => assert.equal(withoutCanary(text), rest));
}

/** Harbor drops leading blank lines even without a canary; NeMo Gym keeps them byte for byte (task-format §1.4). */
const LEADING_BLANKS = ["\n", "\n\nDo it"];
const canaries = dataRows("vectors/canary.jsonl");
test("withoutCanary() agrees with Harbor, leading blank lines apart", {
  skip: canaries.length === 0 && "GYM_HARBOR_DATA is not set",
}, () => {
  for (const row of canaries) {
    assert.equal(withoutCanary(row.in), LEADING_BLANKS.includes(row.in) ? row.in : row.out, JSON.stringify(row.in));
  }
});

test("resolveTemplates() replaces whole values only, an empty variable wins over the default", () => {
  const host = { SET: "v", EMPTY: "" };
  const values = { a: "${SET}", b: "${EMPTY:-d}", c: "${NONE:-d}", d: "x${SET}", e: "$SET", f: "${NONE:-}", g: "" };
  assert.deepEqual(resolveTemplates(values, host), { a: "v", b: "", c: "d", d: "x${SET}", e: "$SET", f: "", g: "" });
});

test("resolveTemplates() names the variable that is not set", () => {
  assert.throws(
    () => resolveTemplates({ TOKEN: "${MY_TOKEN}" }, {}, "verifier.env"),
    /verifier\.env\.TOKEN wants the host's variable MY_TOKEN/,
  );
  assert.deepEqual(missingVariables({ a: "${A}", b: "${B:-x}", c: "${A}", d: "${C}" }, { C: "" }), ["A"]);
});

const templates = dataRows("vectors/env-templates.jsonl");
test("resolveTemplates() agrees with Harbor", { skip: templates.length === 0 && "GYM_HARBOR_DATA is not set" }, () => {
  for (const row of templates) {
    assert.equal(template(row.value) !== undefined, row.is_template, row.value);
    if (row.error === undefined) {
      assert.deepEqual(resolveTemplates({ x: row.value }, row.host), { x: row.out }, row.value);
    } else assert.throws(() => resolveTemplates({ x: row.value }, row.host), row.value);
  }
});
